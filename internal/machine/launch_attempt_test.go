package machine

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

const joinsWithToken = "join <<API_ENDPOINT>> as <<MACHINE_NAME>> with <<BOOTSTRAP_TOKEN>>"

// The next Create is rejected because its user data differs. A new attempt would create a second instance.
//
// Rule: create-is-idempotent.
func TestInstanceOfALostCreateIsFoundBeforeAnotherIsCreated(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		then func(w *world, standby *Reconciler)
	}{
		{"in one process", func(*world, *Reconciler) {}},
		{"after a restart", func(w *world, _ *Reconciler) { w.restart() }},
		{"after a standby took over", func(w *world, standby *Reconciler) { w.process = standby }},
		{"after a call that took no effect", func(w *world, _ *Reconciler) {
			w.cloud.Fail("Create", provider.Errorf(provider.Throttled, "slow down"))
			w.step(w.reconcile("m").RequeueAfter)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, joining)
			// Advance the clock, so that the machine is created long after the processes have started.
			w.reconcile("nobody")
			standby := New(w.options)
			w.step(10 * time.Minute)
			w.cloud.TagLookupDelay = 40 * time.Second
			w.class("small", "one")
			w.createMachine("m")
			w.cloud.Script("Create", fakecloud.Step{Err: provider.Errorf(provider.DeadlineExceeded, "no answer"),
				EffectDelay: time.Millisecond})
			w.step(w.reconcile("m").RequeueAfter)
			w.setSecret("small-user-data", "userData", "two")
			tc.then(w, standby)
			m := w.untilPhase("m", v1beta1.MachineRunning)
			if made := w.cloud.CreatedCount(m.UID); made != 1 || len(w.cloud.DuplicatedMachines()) > 0 {
				t.Errorf("%d instances were created", made)
			}
		})
	}
}

// The token of an instance that is gone cannot be used for another instance.
//
// Rule: attempt-recorded-before-use.
func TestAttemptWithoutAnInstanceIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.class("small", joinsWithToken)
	w.createMachine("m")
	w.cloud.Script("Create", fakecloud.Step{Err: provider.Errorf(provider.DeadlineExceeded, "no answer"), EffectDelay: time.Millisecond})
	before := w.clock.Now()
	w.step(w.reconcile("m").RequeueAfter)
	w.cloud.Vanish(w.cloud.LiveInstances()[0].ProviderID)
	m := w.untilPhase("m", v1beta1.MachineRunning)
	if m.LaunchAttempt() != 2 {
		t.Errorf("attempt is %d", m.LaunchAttempt())
	}
	if waited := w.clock.Since(before); waited < w.cloud.Settle {
		t.Errorf("another attempt began after %s, before the settle time of the first had passed", waited)
	}
	last := w.cloud.Requests()[len(w.cloud.Requests())-1]
	if last.Token != string(m.UID)+"-2" {
		t.Errorf("the second attempt has the token %s", last.Token)
	}
	if n := len(w.tokens()); n != 0 {
		t.Errorf("a running machine has %d bootstrap tokens left", n)
	}
}

// Rule: attempt-recorded-before-use.
func TestOldBootstrapTokenIsReplacedByANewAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.class("small", joinsWithToken)
	w.createMachine("m")
	for range 40 {
		w.cloud.Fail("Create", provider.Errorf(provider.Throttled, "slow down"))
	}
	w.runUntil("m", "a second attempt", func() bool { return w.get("m").LaunchAttempt() == 2 })
	first, created := w.cloud.Requests()[0], len(w.cloud.Requests())
	w.cloud.Recover()
	m := w.untilPhase("m", v1beta1.MachineRunning)
	requests := w.cloud.Requests()
	if len(requests) != created+1 || string(requests[created].UserData.Reveal()) == string(first.UserData.Reveal()) {
		t.Errorf("%d calls after the new attempt, user data %s", len(requests)-created, requests[created].UserData.Reveal())
	}
	if age := w.clock.Since(m.CreationTimestamp.Time); age < 10*time.Minute {
		t.Errorf("the token was replaced after %s, but is valid for 20m", age)
	}
	if n := len(w.tokens()); n != 0 {
		t.Errorf("a running machine has %d bootstrap tokens left", n)
	}
}

// Rule: no-create-from-stale-view.
func TestAStaleCacheCreatesNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		then func(*world)
	}{
		{"launched meanwhile", func(w *world) { w.reconcile("m") }},
		{"being deleted meanwhile", func(w *world) { w.delete("m") }},
		{"gone meanwhile", func(w *world) { w.delete("m"); w.untilGone("m") }},
		{"replaced by another of the same name meanwhile", func(w *world) { w.delete("m"); w.untilGone("m"); w.createMachine("m") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			w.createMachine("m")
			stale := w.get("m")
			tc.then(w)
			w.options.Client = interceptor.NewClient(w.options.Client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
					opts ...client.GetOption) error {
					if m, ok := o.(*v1beta1.Machine); ok {
						stale.DeepCopyInto(m)
						return nil
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			w.restart()
			w.effects.clear()
			result := w.reconcile("m")
			if done := w.effects.since(); len(done) > 0 || result.RequeueAfter == 0 {
				t.Errorf("a pass over a stale machine did %q and is repeated after %s", done, result.RequeueAfter)
			}
		})
	}
}

// The Secret of the token is the only object that a launch creates in the target cluster.
//
// Rule: token-only-on-request.
func TestALaunchWaitsForTheTargetClusterIfItNeedsAToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.class("small", joinsWithToken)
	w.createMachine("m")
	w.refuse = func(verb string, o runtime.Object) error {
		if _, ok := o.(*corev1.Secret); ok && verb == "create" {
			return errors.New("connection refused")
		}
		return nil
	}
	if _, err := w.pass("m"); err == nil {
		t.Error("the pass reports no error to retry on")
	}
	w.wantPhase(w.get("m"), v1beta1.MachineProvisioning)
	w.refuse = nil
	w.untilPhase("m", v1beta1.MachineRunning)
}

// Rule: attempt-recorded-before-use.
func TestSettleTimeCountsFromTheEndOfTheCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.reconcile("nobody")
	w.step(10 * time.Minute)
	w.cloud.Settle, w.cloud.TagLookupDelay = time.Minute, 40*time.Second
	w.class("small", "one")
	w.createMachine("m")
	w.cloud.Script("Create", fakecloud.Step{
		Err: provider.Errorf(provider.DeadlineExceeded, "no answer"), EffectDelay: time.Millisecond,
		During: func() { w.step(50 * time.Second) },
	})
	w.step(w.reconcile("m").RequeueAfter)
	w.setSecret("small-user-data", "userData", "two")
	m := w.untilPhase("m", v1beta1.MachineRunning)
	if made := w.cloud.CreatedCount(m.UID); made != 1 || len(w.cloud.DuplicatedMachines()) > 0 {
		t.Errorf("%d instances were created", made)
	}
}
