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

func lagging(lag time.Duration) func(*world) {
	return func(w *world) { w.cloud.ReadLag = lag }
}

func (w *world) neverFailed() {
	w.t.Helper()
	for _, e := range w.events.take() {
		if strings.HasPrefix(e, "Warning") {
			w.t.Errorf("unexpected event: %s", e)
		}
	}
}

// longRunning creates a Machine that has been Running for a day.
func (w *world) longRunning(name string) *v1beta1.Machine {
	w.t.Helper()
	m := w.running(name)
	w.step(24 * time.Hour)
	w.reconcile(name)
	w.effects.clear()
	w.events.take()
	return m
}

// Rules: four-writes-to-running, absence-needs-two-reads.
func TestInstanceThatShowsLateIsNotCreatedTwice(t *testing.T) {
	t.Parallel()
	straight := []string{"API Machine patch", "API Machine patch status", "API Node patch", "API Machine patch status"}
	for _, lag := range []time.Duration{50 * time.Millisecond, 5 * time.Second, 59 * time.Second} {
		for _, boot := range []time.Duration{0, 10 * time.Second} {
			t.Run(fmt.Sprintf("%s late, runs after %s", lag, boot), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, joining, lagging(lag))
				w.cloud.Boot = boot
				w.class("small", joinsWithToken)
				m := w.createMachine("m")
				w.untilPhase("m", v1beta1.MachineRunning)
				if n := w.cloud.CreatedCount(m.UID); n != 1 {
					t.Errorf("%d instances were created", n)
				}
				w.neverFailed()
				want(t, "writes until Running", w.effects.writes(), straight...)
				if n := len(w.effects.calls()); n > 15 {
					t.Errorf("%d calls to the cloud: %q", n, w.effects.calls())
				}
				w.runUntil("m", "rest", func() bool { return w.reconcile("m").RequeueAfter == 0 })
				w.wantRest("m")
			})
		}
		t.Run(fmt.Sprintf("%s late, without a target cluster", lag), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, noTarget, lagging(lag))
			w.cloud.Boot = time.Second
			w.class("small", "")
			m := w.createMachine("m")
			w.untilPhase("m", v1beta1.MachineAvailable)
			if n := w.cloud.CreatedCount(m.UID); n != 1 {
				t.Errorf("%d instances were created", n)
			}
			w.neverFailed()
		})
	}
}

// The process was killed after it had written the provider ID.
//
// Rules: crash-safe-everywhere, absence-needs-two-reads.
func TestNextProcessWaitsForInstanceThatShowsLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining, lagging(20*time.Second))
	w.class("small", "")
	m := w.createMachine("m")
	w.effects.next = effectCut{effectNumber: 3, dies: true} // 3 is the status write, after Create and the provider ID
	_, _ = w.pass("m")
	w.restart()
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineProvisioning)
	w.untilPhase("m", v1beta1.MachineRunning)
	w.neverFailed()
	if n := w.cloud.CreatedCount(m.UID); n != 1 {
		t.Errorf("%d instances were created", n)
	}
}

// Rules: join-timeout-fails-machine, absence-needs-two-reads.
func TestMachineFailsIfItsInstanceNeverShows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lagging(48*time.Hour))
	w.cloud.Boot, w.cloud.Settle = time.Second, 48*time.Hour
	w.class("small", "")
	w.createMachine("m")
	m := w.untilPhase("m", v1beta1.MachineFailed)
	if m.Status.FailureReason != v1beta1.FailureJoinClusterTimeout {
		t.Errorf("failureReason is %s", m.Status.FailureReason)
	}
	within(t, "the age of the machine when it failed", w.clock.Since(m.CreationTimestamp.Time),
		v1beta1.DefaultCreationTimeout, v1beta1.DefaultCreationTimeout+time.Minute)
}

// Two calls to the cloud and one write are enough.
//
// Rules: unhealthy-node-checks-instance, absence-needs-two-reads.
func TestPreemptionIsDetectedWithinSeconds(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(*world){"the same process": func(*world) {},
		"another process": (*world).restart} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			m := w.longRunning("m")
			w.cloud.Vanish(m.Spec.ProviderID)
			w.setNodeReady(m.Status.NodeRef.Name, corev1.ConditionUnknown)
			again(w)
			began := w.clock.Now()
			m = w.untilPhase("m", v1beta1.MachineFailed)
			if m.Status.FailureReason != v1beta1.FailureInstanceVanished {
				t.Errorf("failureReason is %s", m.Status.FailureReason)
			}
			within(t, "the time until detection", w.clock.Since(began), recheckAfter(w.cloud.Settle), maxRecheck)
			want(t, "calls", w.effects.calls(), "cloud get", "cloud get")
			want(t, "writes", w.effects.writes(), "API Machine patch status", "API Machine patch status")
			if again := w.wantQuiet("m").RequeueAfter; again != 0 {
				t.Errorf("reconciles again after %s", again)
			}
		})
	}
}

// A node that shuts down reports this before its instance is gone.
//
// Rules: unhealthy-node-checks-instance, absence-needs-two-reads.
func TestPreemptionThatTheNodeReportsFirstIsDetected(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ends func(w *world, id string)
		most time.Duration
	}{
		"the instance is shown as terminating": {func(w *world, id string) {
			w.cloud.SetState(id, provider.StateTerminating, "preempted")
		}, time.Minute},
		"the instance is still shown as running": {func(w *world, _ string) { w.cloud.ReadLag = 5 * time.Second }, time.Minute + maxRecheck},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			m := w.longRunning("m")
			c.ends(w, m.Spec.ProviderID)
			began := w.clock.Now()
			w.setNodeReady(m.Status.NodeRef.Name, corev1.ConditionFalse)
			w.reconcile("m")
			w.wantPhase(w.get("m"), v1beta1.MachineUnhealthy)
			w.cloud.Vanish(m.Spec.ProviderID)
			w.step(40 * time.Second)
			w.setNodeReady(m.Status.NodeRef.Name, corev1.ConditionUnknown)
			m = w.untilPhase("m", v1beta1.MachineFailed)
			if m.Status.FailureReason != v1beta1.FailureInstanceVanished {
				t.Errorf("failureReason is %s", m.Status.FailureReason)
			}
			within(t, "the time until detection", w.clock.Since(began), 40*time.Second, c.most)
		})
	}
}

// Rule: absence-needs-two-reads.
func TestVanishedNewInstanceIsDetectedAfterTheSettleTime(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(*world){"the same process": func(*world) {}, "another process": (*world).restart} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			m := w.running("m")
			began := w.clock.Now()
			w.cloud.Vanish(m.Spec.ProviderID)
			w.setNodeReady(m.Status.NodeRef.Name, corev1.ConditionUnknown)
			again(w)
			w.untilPhase("m", v1beta1.MachineFailed)
			within(t, "the time until detection", w.clock.Since(began), w.cloud.Settle+recheckAfter(w.cloud.Settle),
				w.cloud.Settle+maxRecheck+time.Second)
			if n := len(w.effects.since("cloud get")); n > 5 { // In another process, two of the reads are by tags.
				t.Errorf("%d reads", n)
			}
		})
	}
}

// Two NotFound answers also prove nothing if the instance was found in between.
//
// Rule: absence-needs-two-reads.
func TestASingleNotFoundProvesNothing(t *testing.T) {
	t.Parallel()
	missing := fakecloud.Step{Err: provider.Errorf(provider.NotFound, "a replica that is behind")}
	for name, between := range map[string]func(*world){
		"shown again": func(*world) {},
		"an error": func(w *world) {
			w.cloud.Script("Get", fakecloud.Step{Err: provider.Errorf(provider.Unavailable, "no")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			m := w.longRunning("m")
			w.setNodeReady(m.Status.NodeRef.Name, corev1.ConditionFalse)
			w.cloud.Script("Get", missing)
			between(w)
			if name == "an error" {
				w.cloud.Script("Get", missing)
			}
			for range 6 {
				again := w.reconcile("m").RequeueAfter
				w.step(again)
			}
			w.wantPhase(w.get("m"), v1beta1.MachineUnhealthy)
			w.wantRest("m")
		})
	}
	t.Run("the Node is Ready", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", "")
		m := w.longRunning("m")
		for range 2 {
			w.cloud.Script("Get", missing)
			w.setNodeReady(m.Status.NodeRef.Name, corev1.ConditionFalse)
			w.reconcile("m")
			w.step(time.Hour)
			w.setNodeReady(m.Status.NodeRef.Name, corev1.ConditionTrue)
			w.reconcile("m")
			w.wantPhase(w.get("m"), v1beta1.MachineRunning)
		}
		w.wantRest("m")
	})
}

// Rule: absence-needs-two-reads.
func TestStaleReadDoesNotChangeTheState(t *testing.T) {
	t.Parallel()
	back := fakecloud.Step{EditAnswer: func(in *provider.Instance) { in.State = provider.StatePending }}
	w := newWorld(t, noTarget)
	w.class("small", "")
	w.createMachine("m")
	m := w.untilPhase("m", v1beta1.MachineAvailable)
	w.effects.clear()
	for range 3 {
		w.cloud.Script("Get", back)
		w.process.CheckInstance(m)
		w.reconcile("m")
	}
	want(t, "writes", w.effects.writes())
	w.wantRest("m")
}

// The Node's certificate needs the addresses.
//
// Rules: serving-certificate-for-known-addresses, absence-needs-two-reads.
func TestAddressesThatShowAfterTheNodeIsReadyAreRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lagging(20*time.Second))
	w.cloud.Boot = time.Second
	w.class("small", "")
	w.createMachine("m")
	w.reconcile("m")
	w.cloud.SetAddress(w.get("m").Spec.ProviderID, "10.7.7.7")
	w.step(2 * time.Second)
	w.node("m", true)
	w.runUntil("m", "the address", func() bool {
		m := w.get("m")
		return m.Status.Phase == v1beta1.MachineRunning && len(m.Status.Addresses) == 1 &&
			m.Status.Addresses[0].Address == "10.7.7.7"
	})
	w.wantRest("m")
}

// Rules update-in-place, gone-is-confirmed: after NotFound for a new instance, the update is repeated later. For an old
// instance, Get shows whether it still exists.
func TestUpdateOfInstanceThatIsNotShown(t *testing.T) {
	t.Parallel()
	missing := provider.Errorf(provider.NotFound, "no such instance")
	t.Run("a new instance is waited for", func(t *testing.T) {
		t.Parallel()
		a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateDone}},
			errs: []error{missing, missing, missing}}
		w, m := changed(t, a)
		w.events.take()
		w.runUntil("m", "the update", func() bool {
			m = w.get("m")
			return m.Status.Applied.ClassName == "large"
		})
		w.wantPhase(m, v1beta1.MachineRunning)
		for _, e := range w.events.take() {
			if strings.HasPrefix(e, "Warning") {
				t.Errorf("unexpected event: %s", e)
			}
		}
		if n := len(a.asked); n != 4 {
			t.Errorf("asked %d times", n)
		}
	})
	t.Run("an old instance is looked up", func(t *testing.T) {
		t.Parallel()
		a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateDone}},
			errs: slices.Repeat([]error{missing}, 40)}
		w, m := changed(t, a)
		w.step(time.Hour)
		w.cloud.Vanish(m.Spec.ProviderID)
		w.setNodeReady(m.Status.NodeRef.Name, corev1.ConditionUnknown)
		began := w.clock.Now()
		m = w.untilPhase("m", v1beta1.MachineFailed)
		if m.Status.FailureReason != v1beta1.FailureInstanceVanished {
			t.Errorf("failureReason is %s", m.Status.FailureReason)
		}
		within(t, "the time until detection", w.clock.Since(began), time.Second, time.Minute)
	})
}

// Rule: unsuitable-instance-refused.
func TestAdoptionOfInstanceThatShowsLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lagging(20*time.Second))
	id := w.adoptable()
	w.nodeOfAnother(id)
	w.createMachine("m", withProviderID(id))
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachinePending)
	m := w.untilPhase("m", v1beta1.MachineRunning)
	if in := w.instance(id); in.MachineUID != m.UID || m.Status.FailureReason != "" {
		t.Errorf("the instance has the tags of machine %s; failure %q", in.MachineUID, m.Status.FailureReason)
	}
	w.delete("m")
	w.untilGone("m")
	if in := w.instance(id); in != nil {
		t.Errorf("the instance remains: %+v", in)
	}
}
