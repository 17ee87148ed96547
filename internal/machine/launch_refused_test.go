package machine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

func leadingAlone(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.options.MachineCacheVersion = func() string { return "18446744073709551615" }
	w.restart()
	w.class("small", "")
	// When the process reconciles its first Machine, it learns when it became the leader.
	w.createMachine("first")
	w.reconcile("first")
	return w
}

func (w *world) wantGoneAtOnce(name string) {
	w.t.Helper()
	w.delete(name)
	w.effects.clear()
	w.reconcile(name)
	if m := w.get(name); m != nil {
		w.t.Errorf("the machine still exists: %s", summaryOf(m))
	}
	if calls := w.effects.calls(); len(calls) > 0 {
		w.t.Errorf("driver calls: %q", calls)
	}
}

// The deletion does not wait for the settle time, and does not need credentials.
//
// Rule: refused-launch-deletes-at-once.
func TestAMachineWhoseCreationsWereRefusedIsDeletedAtOnce(t *testing.T) {
	t.Parallel()
	for _, code := range []provider.Code{provider.Unauthenticated, provider.FailedPrecondition, provider.InvalidArgument,
		provider.NotFound} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			w := leadingAlone(t)
			refusal := provider.Errorf(code, "no")
			w.cloud.Fail("Create", refusal, refusal)
			w.createMachine("m")
			wait := w.reconcile("m").RequeueAfter
			w.step(wait)
			w.reconcile("m")
			if got := len(w.cloud.Requests()); got != 3 {
				t.Fatalf("Create was called %d times", got)
			}
			w.restart()
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "small-credentials"}}
			w.removeFinalizers(secret)
			if err := w.api.Delete(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
			w.wantGoneAtOnce("m")
		})
	}
}

// Rule: refused-launch-deletes-at-once.
func TestMachineWhoseCreateMayHaveTakenEffectIsNotDeletedAtOnce(t *testing.T) {
	t.Parallel()
	refusal := provider.Errorf(provider.Unauthenticated, "no")
	lost := fakecloud.Step{Err: provider.Errorf(provider.Unavailable, "no answer"), EffectDelay: 30 * time.Second}
	for name, tc := range map[string]struct {
		steps   []fakecloud.Step
		restart bool
	}{
		"lost, then refused":            {[]fakecloud.Step{lost, {Err: refusal}}, false},
		"refused, then lost":            {[]fakecloud.Step{{Err: refusal}, lost}, false},
		"refused, then lost by a crash": {[]fakecloud.Step{{Err: refusal}, lost}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := leadingAlone(t)
			w.cloud.Script("Create", tc.steps...)
			w.createMachine("m")
			wait := w.reconcile("m").RequeueAfter
			w.step(wait)
			if tc.restart {
				w.restart()
				w.step(2 * time.Minute) // A new process waits, because an earlier process may have called Create.
				w.runUntil("m", "the second creation", func() bool { return len(w.cloud.Requests()) == 3 })
			} else {
				w.reconcile("m")
			}
			w.restart()
			w.delete("m")
			w.reconcile("m")
			if w.get("m") == nil {
				t.Fatal("the machine is gone, but its instance may still appear")
			}
			w.untilGone("m")
			if live := w.cloud.LiveInstances(); len(live) != 1 {
				t.Errorf("%d instances remain, want only that of the other machine", len(live))
			}
		})
	}
}
