package machine

import (
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

func (w *world) failInstances(code provider.Code) {
	for _, in := range w.cloud.LiveInstances() {
		w.cloud.Change(in.ProviderID, func(in *provider.Instance) {
			in.State, in.StateCode, in.StateMessage = provider.StateFailed, code, "no valid host was found"
		})
	}
}

// If the cloud accepts an instance that then fails for lack of capacity, the result is the same as if Create had
// returned ResourceExhausted.
//
// Rules: late-lack-of-capacity, one-event-per-error, join-timeout-fails-machine.
func TestAnInstanceThatFailsForLackOfCapacityIsTriedAgainSlowly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.cloud.Boot, w.cloud.Shutdown = time.Hour, 5*time.Second
	w.class("small", "token=<<BOOTSTRAP_TOKEN>>")
	m := w.createMachine("m")
	var created []time.Time
	var failed time.Duration
	began := w.clock.Now()
	for w.clock.Now().Sub(began) < 50*time.Minute {
		before := w.cloud.CreatedCount(m.UID)
		again := w.reconcile("m").RequeueAfter
		if w.cloud.CreatedCount(m.UID) > before {
			created = append(created, w.clock.Now())
			w.step(3 * time.Second)
			w.failInstances(provider.ResourceExhausted)
			continue
		}
		m := w.get("m")
		if c := w.wantCondition(m, v1beta1.ConditionLaunched, "False", v1beta1.ReasonInsufficientResources); t.Failed() {
			t.Fatalf("after %s: %+v", w.clock.Now().Sub(began), c)
		}
		w.wantCondition(m, v1beta1.ConditionReady, "False", v1beta1.ReasonInsufficientResources)
		if m.Status.FailureReason != "" && failed == 0 {
			failed = w.clock.Now().Sub(began)
			if m.Status.FailureReason != v1beta1.FailureInsufficientResources {
				t.Errorf("it failed with %s: %s", m.Status.FailureReason, m.Status.FailureMessage)
			}
		}
		if again <= 0 {
			t.Fatalf("no retry is scheduled after %s", w.clock.Now().Sub(began))
		}
		w.step(again)
	}
	for i := 1; i < len(created); i++ {
		gap, least := created[i].Sub(created[i-1]), min(time.Minute<<(i-1), 10*time.Minute)
		within(t, "the wait for another instance", gap, least, least+least/4+time.Minute)
	}
	if len(created) < 6 {
		t.Errorf("there were %d tries in 50 minutes, want at least 6", len(created))
	}
	within(t, "the time until it failed", failed, 20*time.Minute, 31*time.Minute)
	if n := len(w.tokens()); n > 1 {
		t.Errorf("there are %d bootstrap tokens", n)
	}
	want(t, "events", reasons(w.events.take()), v1beta1.ReasonInsufficientResources,
		string(v1beta1.FailureInsufficientResources))

	w.cloud.Boot = 10 * time.Second
	done := w.untilPhase("m", v1beta1.MachineRunning)
	if l := done.Status.Launch; l == nil || l.NoCapacitySince != nil || l.Step != "" {
		t.Errorf("launch is %+v once the machine runs", l)
	}
	want(t, "machines with two instances", names(w.cloud.DuplicatedMachines()))
	w.wantRest("m")
}

func names[T ~string](all []T) (out []string) {
	for _, one := range all {
		out = append(out, string(one))
	}
	return out
}

// Rules: late-lack-of-capacity, retry-policy-by-code.
func TestAChangeEndsTheWaitForCapacity(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cloud.Boot = time.Hour
	w.class("small", "")
	m := w.createMachine("m")
	w.reconcile("m")
	w.failInstances(provider.ResourceExhausted)
	for range 4 {
		w.step(5 * time.Second)
		w.reconcile("m")
	}
	if n := w.cloud.CreatedCount(m.UID); n != 1 {
		t.Fatalf("%d instances were created within 20 seconds", n)
	}
	w.setSecret("small-credentials", "token", "rotated")
	w.reconcile("m")
	if n := w.cloud.CreatedCount(m.UID); n != 2 {
		t.Errorf("%d instances were created after new credentials, want 2", n)
	}
}

// Rule: pending-instance-polled.
func TestFailedInstanceWithAnotherCodeFailsTheMachine(t *testing.T) {
	t.Parallel()
	for _, code := range []provider.Code{"", provider.InvalidArgument, provider.Internal} {
		w := newWorld(t)
		w.cloud.Boot = time.Hour
		w.class("small", "")
		w.createMachine("m")
		w.step(w.reconcile("m").RequeueAfter)
		w.failInstances(code)
		w.reconcile("m")
		if m := w.get("m"); m.Status.FailureReason != v1beta1.FailureCreateError {
			t.Errorf("with code %q the failure is %q", code, m.Status.FailureReason)
		}
		w.wantRest("m")
	}
}

// A cloud may report a failed state after a failed operation, although the operating system of the instance continues
// to run.
//
// Rule: node-outlives-failed-state.
func TestNodeOutweighsTheFailedStateOfItsInstance(t *testing.T) {
	t.Parallel()
	for _, code := range []provider.Code{"", provider.ResourceExhausted} {
		w := newWorld(t)
		w.class("small", "")
		w.running("m")
		w.failInstances(code)

		node := nodeNameOf(w.namespace, "m")
		w.setNodeReady(node, "False")
		for range 3 {
			w.step(time.Minute)
			w.reconcile("m")
		}
		w.wantPhase(w.get("m"), v1beta1.MachineUnhealthy) // Health checks decide whether the machine is replaced.
		w.writeStatus("m", func(s *v1beta1.MachineStatus) { *s = v1beta1.MachineStatus{} })
		w.restart()
		for range 3 {
			w.step(time.Minute)
			w.reconcile("m")
			if m := w.get("m"); m.Status.FailureReason != "" || m.Status.NodeRef == nil {
				t.Errorf("code %q, the status was lost: failure %q, node %v", code, m.Status.FailureReason, m.Status.NodeRef)
			}
		}
		w.setNodeReady(node, "True")
		w.reconcile("m")
		w.wantPhase(w.get("m"), v1beta1.MachineRunning)
		want(t, "deletions", w.effects.since("cloud delete"))
	}
}

// The Node may register after the controller has decided to delete the instance.
//
// Rule: node-outlives-failed-state.
func TestAnInstanceThatBecomesANodeIsNotDiscarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cloud.Boot = time.Hour
	w.class("small", "")
	w.createMachine("m")
	w.reconcile("m")
	w.failInstances(provider.ResourceExhausted)
	w.step(2 * time.Second)
	w.reconcile("m")
	if m := w.get("m"); !m.Retrying() {
		t.Fatalf("launch is %+v", m.Status.Launch)
	}
	w.node("m", true)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
	want(t, "deletions", w.effects.since("cloud delete"))
	w.wantRest("m")
}
