package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

// lagging makes the reads of the cloud late.
func lagging(lag time.Duration) func(*world) {
	return func(w *world) { w.cloud.Lag = lag }
}

// neverFailed reports the events of failure since the last call.
func (w *world) neverFailed() {
	w.t.Helper()
	for _, e := range w.events.take() {
		if strings.HasPrefix(e, "Warning") {
			w.t.Errorf("reported: %s", e)
		}
	}
}

// longRunning brings a Machine to Running and lets a day pass.
func (w *world) longRunning(name string) *v1beta1.Machine {
	w.t.Helper()
	m := w.running(name)
	w.step(24 * time.Hour)
	w.reconcile(name)
	w.effects.clear()
	w.events.take()
	return m
}

// A cloud that shows an instance late, and its states, gets one instance of a machine, and no write more than another.
//
// Rules: four-writes-to-running, absence-needs-two-reads.
func TestAnInstanceThatShowsLateIsAwaited(t *testing.T) {
	t.Parallel()
	straight := []string{"API Machine patch", "API Machine patch status", "API Node patch", "API Machine patch status"}
	for _, lag := range []time.Duration{50 * time.Millisecond, 5 * time.Second, 59 * time.Second} {
		for _, boot := range []time.Duration{0, 10 * time.Second} {
			t.Run(fmt.Sprintf("%s late, runs after %s", lag, boot), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, joining, lagging(lag))
				w.cloud.Boot = boot
				w.class("small", joinsWithToken)
				m := w.born("m")
				w.untilPhase("m", v1beta1.MachineRunning)
				if n := w.cloud.Created(m.UID); n != 1 {
					t.Errorf("%d instances were made", n)
				}
				w.neverFailed()
				want(t, "writes until Running", w.effects.writes(), straight...)
				if n := len(w.effects.calls()); n > 15 {
					t.Errorf("%d calls of the cloud: %q", n, w.effects.calls())
				}
				w.until("m", "rest", func() bool { return w.reconcile("m").RequeueAfter == 0 })
				w.wantRest("m")
			})
		}
		t.Run(fmt.Sprintf("%s late, without a target cluster", lag), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, noTarget, lagging(lag))
			w.cloud.Boot = time.Second
			w.class("small", "")
			m := w.born("m")
			w.untilPhase("m", v1beta1.MachineAvailable)
			if n := w.cloud.Created(m.UID); n != 1 {
				t.Errorf("%d instances were made", n)
			}
			w.neverFailed()
		})
	}
}

// The provider ID was written and nothing else when the process died, and the cloud does not show the instance.
//
// Rules: crash-safe-everywhere, absence-needs-two-reads.
func TestAnInstanceThatShowsLateIsAwaitedByTheNextProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining, lagging(20*time.Second))
	w.class("small", "")
	m := w.born("m")
	w.effects.next = cut{at: 3, dies: true} // create, provider ID, status
	_, _ = w.pass("m")
	w.restart()
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineProvisioning)
	w.untilPhase("m", v1beta1.MachineRunning)
	w.neverFailed()
	if n := w.cloud.Created(m.UID); n != 1 {
		t.Errorf("%d instances were made", n)
	}
}

// Rules: join-timeout-fails-machine, absence-needs-two-reads.
func TestAnInstanceThatIsNeverShownFailsInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lagging(48*time.Hour))
	w.cloud.Boot, w.cloud.Settle = time.Second, 48*time.Hour
	w.class("small", "")
	w.born("m")
	m := w.untilPhase("m", v1beta1.MachineFailed)
	if m.Status.FailureReason != v1beta1.FailureJoinClusterTimeout {
		t.Errorf("failureReason is %s", m.Status.FailureReason)
	}
	within(t, "the age of the machine when it failed", w.clock.Since(m.CreationTimestamp.Time),
		v1beta1.DefaultCreationTimeout, v1beta1.DefaultCreationTimeout+time.Minute)
}

// What is really gone is found within seconds where the machine is no longer new: two calls, one write. Another process
// makes sure that it has looked in the right place, by two lookups more.
//
// Rules: unhealthy-node-checks-instance, absence-needs-two-reads, scope-confirmed-by-tags.
func TestAPreemptedInstanceIsFoundWithinSeconds(t *testing.T) {
	t.Parallel()
	calls := []string{"cloud get", "cloud get", "cloud get", "cloud get"}
	for name, again := range map[string]func(*world) int{"the same process": func(*world) int { return 2 },
		"another process": func(w *world) int { w.restart(); return 4 }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			m := w.longRunning("m")
			w.cloud.Vanish(m.Spec.ProviderID)
			w.nodeIs(m.Status.NodeRef.Name, corev1.ConditionUnknown)
			n := again(w)
			began := w.clock.Now()
			m = w.untilPhase("m", v1beta1.MachineFailed)
			if m.Status.FailureReason != v1beta1.FailureInstanceVanished {
				t.Errorf("failureReason is %s", m.Status.FailureReason)
			}
			within(t, "the time until it was found", w.clock.Since(began), recheckAfter(w.cloud.Settle), maxRecheck)
			want(t, "calls", w.effects.calls(), calls[:n]...)
			want(t, "writes", w.effects.writes(), "API Machine patch status", "API Machine patch status")
			if again := w.wantQuiet("m").RequeueAfter; again != 0 {
				t.Errorf("reconciles again after %s", again)
			}
		})
	}
}

// A Node that is shut down reports it before its instance is gone, or before a cloud that is behind shows that.
//
// Rules: unhealthy-node-checks-instance, absence-needs-two-reads.
func TestAPreemptionThatTheNodeShowsFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ends func(w *world, id string)
		most time.Duration
	}{
		"it is shown as terminating": {func(w *world, id string) {
			w.cloud.SetState(id, provider.StateTerminating, "preempted")
		}, time.Minute},
		"it is shown as running": {func(w *world, _ string) { w.cloud.Lag = 5 * time.Second }, time.Minute + maxRecheck},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			m := w.longRunning("m")
			c.ends(w, m.Spec.ProviderID)
			began := w.clock.Now()
			w.nodeIs(m.Status.NodeRef.Name, corev1.ConditionFalse)
			w.reconcile("m")
			w.wantPhase(w.get("m"), v1beta1.MachineUnhealthy)
			w.cloud.Vanish(m.Spec.ProviderID)
			w.step(40 * time.Second)
			w.nodeIs(m.Status.NodeRef.Name, corev1.ConditionUnknown)
			m = w.untilPhase("m", v1beta1.MachineFailed)
			if m.Status.FailureReason != v1beta1.FailureInstanceVanished {
				t.Errorf("failureReason is %s", m.Status.FailureReason)
			}
			within(t, "the time until it was found", w.clock.Since(began), 40*time.Second, c.most)
		})
	}
}

// An instance that vanishes while its machine is new is found when the cloud must have shown it.
//
// Rule: absence-needs-two-reads.
func TestANewInstanceThatVanishesIsFoundAfterTheSettlingTime(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(*world){"the same process": func(*world) {}, "another process": (*world).restart} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			m := w.running("m")
			began := w.clock.Now()
			w.cloud.Vanish(m.Spec.ProviderID)
			w.nodeIs(m.Status.NodeRef.Name, corev1.ConditionUnknown)
			again(w)
			w.untilPhase("m", v1beta1.MachineFailed)
			within(t, "the time until it was found", w.clock.Since(began), w.cloud.Settle+recheckAfter(w.cloud.Settle),
				w.cloud.Settle+maxRecheck+time.Second)
			if n := len(w.effects.of("cloud get")); n > 5 { // Two of them by tags in another process.
				t.Errorf("%d reads", n)
			}
		})
	}
}

// One NotFound proves nothing, nor do two with something between them that says otherwise.
//
// Rule: absence-needs-two-reads.
func TestASingleNotFoundProvesNothing(t *testing.T) {
	t.Parallel()
	missing := fakecloud.Step{Err: provider.Errorf(provider.NotFound, "a replica that is behind")}
	for name, between := range map[string]func(*world){
		"shown again": func(*world) {},
		"an error":    func(w *world) { w.cloud.Will("Get", fakecloud.Step{Err: provider.Errorf(provider.Unavailable, "no")}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			m := w.longRunning("m")
			w.nodeIs(m.Status.NodeRef.Name, corev1.ConditionFalse)
			w.cloud.Will("Get", missing)
			between(w)
			if name == "an error" {
				w.cloud.Will("Get", missing)
			}
			for range 6 {
				again := w.reconcile("m").RequeueAfter
				w.step(again)
			}
			w.wantPhase(w.get("m"), v1beta1.MachineUnhealthy)
			w.wantRest("m")
		})
	}
	t.Run("its Node is Ready", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", "")
		m := w.longRunning("m")
		for range 2 {
			w.cloud.Will("Get", missing)
			w.nodeIs(m.Status.NodeRef.Name, corev1.ConditionFalse)
			w.reconcile("m")
			w.step(time.Hour)
			w.nodeIs(m.Status.NodeRef.Name, corev1.ConditionTrue)
			w.reconcile("m")
			w.wantPhase(w.get("m"), v1beta1.MachineRunning)
		}
		w.wantRest("m")
	})
}

// A read that is behind shows an instance that ran as one that has not booted. Nothing is written to and fro for it.
//
// Rule: absence-needs-two-reads.
func TestAStateThatGoesBackIsNoChange(t *testing.T) {
	t.Parallel()
	back := fakecloud.Step{Answer: func(in *provider.Instance) { in.State = provider.StatePending }}
	w := newWorld(t, noTarget)
	w.class("small", "")
	w.born("m")
	m := w.untilPhase("m", v1beta1.MachineAvailable)
	w.effects.clear()
	for range 3 {
		w.cloud.Will("Get", back)
		w.process.CheckInstance(m)
		w.reconcile("m")
	}
	want(t, "writes", w.effects.writes())
	w.wantRest("m")
}

// The address of an instance that the cloud shows only after its Node was Ready is needed for the Node's certificate.
//
// Rules: serving-certificate-for-known-addresses, absence-needs-two-reads.
func TestWhatShowsAfterTheNodeIsReadyIsRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lagging(20*time.Second))
	w.cloud.Boot = time.Second
	w.class("small", "")
	w.born("m")
	w.reconcile("m")
	w.cloud.SetAddress(w.get("m").Spec.ProviderID, "10.7.7.7")
	w.step(2 * time.Second)
	w.node("m", true)
	w.until("m", "the address", func() bool {
		m := w.get("m")
		return m.Status.Phase == v1beta1.MachineRunning && len(m.Status.Addresses) == 1 &&
			m.Status.Addresses[0].Address == "10.7.7.7"
	})
	w.wantRest("m")
}

// Rules update-in-place, gone-is-confirmed: a young instance that the cloud does not show to Update is waited for; of
// an old one Get is asked.
func TestAnUpdateOfAnInstanceThatIsNotShown(t *testing.T) {
	t.Parallel()
	missing := provider.Errorf(provider.NotFound, "no such instance")
	t.Run("a young one is waited for", func(t *testing.T) {
		t.Parallel()
		a := &answers{given: []provider.UpdateResult{{Outcome: provider.UpdateDone}},
			errs: []error{missing, missing, missing}}
		w, m := changed(t, a)
		w.events.take()
		w.until("m", "the update", func() bool {
			m = w.get("m")
			return m.Status.Applied.ClassName == "large"
		})
		w.wantPhase(m, v1beta1.MachineRunning)
		for _, e := range w.events.take() {
			if strings.HasPrefix(e, "Warning") {
				t.Errorf("reported: %s", e)
			}
		}
		if n := len(a.asked); n != 4 {
			t.Errorf("asked %d times", n)
		}
	})
	t.Run("an old one is asked for", func(t *testing.T) {
		t.Parallel()
		a := &answers{given: []provider.UpdateResult{{Outcome: provider.UpdateDone}},
			errs: slices.Repeat([]error{missing}, 40)}
		w, m := changed(t, a)
		w.step(time.Hour)
		w.cloud.Vanish(m.Spec.ProviderID)
		w.nodeIs(m.Status.NodeRef.Name, corev1.ConditionUnknown)
		began := w.clock.Now()
		m = w.untilPhase("m", v1beta1.MachineFailed)
		if m.Status.FailureReason != v1beta1.FailureInstanceVanished {
			t.Errorf("failureReason is %s", m.Status.FailureReason)
		}
		within(t, "the time until it was found", w.clock.Since(began), time.Second, time.Minute)
	})
}

// Rule unsuitable-instance-refused: an instance that the cloud does not show yet is refused without harm, and taken
// over as soon as it is seen.
func TestAdoptingAnInstanceThatShowsLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lagging(20*time.Second))
	id := w.adoptable()
	w.nodeOfAnother(id)
	w.born("m", of(id))
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachinePending)
	m := w.untilPhase("m", v1beta1.MachineRunning)
	if in := w.instance(id); in.MachineUID != m.UID || m.Status.FailureReason != "" {
		t.Errorf("the tags are of %s; failure %s", in.MachineUID, m.Status.FailureReason)
	}
	// Its tags show late as well.
	w.delete("m")
	w.untilGone("m")
	if in := w.instance(id); in != nil {
		t.Errorf("left is %+v", in)
	}
}
