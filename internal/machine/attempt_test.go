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

// A Create whose answer was lost may have made an instance that lookups do not show yet. When the next one is refused
// since its user data differs, the machine has to wait for it to show; a new attempt would make a twin.
//
// Rule: create-is-idempotent.
func TestALostInstanceIsFoundBeforeAnotherIsMade(t *testing.T) {
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
			// A long time passes between the start of the processes and the birth of the machine.
			w.reconcile("nobody")
			standby := New(w.options)
			w.step(10 * time.Minute)
			w.cloud.Blind = 40 * time.Second
			w.class("small", "one")
			w.born("m")
			w.cloud.Will("Create", fakecloud.Step{Err: provider.Errorf(provider.DeadlineExceeded, "no answer"),
				Late: time.Millisecond})
			w.step(w.reconcile("m").RequeueAfter)
			w.setSecret("small-user-data", "userData", "two")
			tc.then(w, standby)
			m := w.untilPhase("m", v1beta1.MachineRunning)
			if made := w.cloud.Created(m.UID); made != 1 || len(w.cloud.Twins()) > 0 {
				t.Errorf("%d instances were made", made)
			}
		})
	}
}

// A token whose instance came and went is spent: once that is certain, a new attempt is opened, with a token of its
// own.
//
// Rule: attempt-recorded-before-use.
func TestASpentAttemptIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.class("small", joinsWithToken)
	m := w.born("m")
	w.cloud.Will("Create", fakecloud.Step{Err: provider.Errorf(provider.DeadlineExceeded, "no answer"), Late: time.Millisecond})
	before := w.clock.Now()
	w.step(w.reconcile("m").RequeueAfter)
	w.cloud.Vanish(w.cloud.Live()[0].ProviderID)
	m = w.untilPhase("m", v1beta1.MachineRunning)
	if m.LaunchAttempt() != 2 {
		t.Errorf("attempt is %d", m.LaunchAttempt())
	}
	if waited := w.clock.Since(before); waited < w.cloud.Settle {
		t.Errorf("another attempt was made after %s, before the first had settled", waited)
	}
	last := w.cloud.Requests()[len(w.cloud.Requests())-1]
	if last.Token != string(m.UID)+"-2" {
		t.Errorf("the second attempt was made with the token %s", last.Token)
	}
	if n := len(w.tokens()); n != 0 {
		t.Errorf("%d bootstrap tokens are left of a machine that runs", n)
	}
}

// A bootstrap token must live long enough to join with.
//
// Rule: attempt-recorded-before-use.
func TestAnOldTokenIsReplacedByANewAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.class("small", joinsWithToken)
	w.born("m")
	for range 40 {
		w.cloud.Fail("Create", provider.Errorf(provider.Throttled, "slow down"))
	}
	w.until("m", "a second attempt", func() bool { return w.get("m").LaunchAttempt() == 2 })
	first, created := w.cloud.Requests()[0], len(w.cloud.Requests())
	w.cloud.Recover()
	m := w.untilPhase("m", v1beta1.MachineRunning)
	requests := w.cloud.Requests()
	if len(requests) != created+1 || string(requests[created].UserData.Reveal()) == string(first.UserData.Reveal()) {
		t.Errorf("%d calls after the new attempt, user data %s", len(requests)-created, requests[created].UserData.Reveal())
	}
	if age := w.clock.Since(m.CreationTimestamp.Time); age < 10*time.Minute {
		t.Errorf("the token was replaced after %s, it lives 20m", age)
	}
	if n := len(w.tokens()); n != 0 {
		t.Errorf("%d bootstrap tokens are left of a machine that runs", n)
	}
}

// The decision to create is taken on the live object: a cache may be late by any amount.
//
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
		{"another one meanwhile", func(w *world) { w.delete("m"); w.untilGone("m"); w.born("m") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			w.born("m")
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
			if done := w.effects.of(); len(done) > 0 || result.RequeueAfter == 0 {
				t.Errorf("a pass over a stale machine did %q and comes back after %s", done, result.RequeueAfter)
			}
		})
	}
}

// The token secret is the one thing that a launch writes into the target cluster; an outage of it is no error of the
// machine.
//
// Rule: token-only-on-request.
func TestALaunchWaitsForTheTargetClusterIfItNeedsAToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.class("small", joinsWithToken)
	w.born("m")
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

// Rule attempt-recorded-before-use: what a call that lasted long may still do is not forgotten while it can do it.
func TestTheSettlingTimeCountsFromTheEndOfTheCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.reconcile("nobody")
	w.step(10 * time.Minute)
	w.cloud.Settle, w.cloud.Blind = time.Minute, 40*time.Second
	w.class("small", "one")
	w.born("m")
	w.cloud.Will("Create", fakecloud.Step{
		Err: provider.Errorf(provider.DeadlineExceeded, "no answer"), Late: time.Millisecond,
		During: func() { w.step(50 * time.Second) },
	})
	w.step(w.reconcile("m").RequeueAfter)
	w.setSecret("small-user-data", "userData", "two")
	m := w.untilPhase("m", v1beta1.MachineRunning)
	if made := w.cloud.Created(m.UID); made != 1 || len(w.cloud.Twins()) > 0 {
		t.Errorf("%d instances were made", made)
	}
}
