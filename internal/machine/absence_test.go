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

// What is really gone is found within seconds where the machine is no longer new: two calls, one write.
//
// Rules: unhealthy-node-checks-instance, absence-needs-two-reads.
func TestAPreemptedInstanceIsFoundWithinSeconds(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(*world){"the same process": func(*world) {}, "another process": (*world).restart} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			m := w.longRunning("m")
			w.cloud.Vanish(m.Spec.ProviderID)
			w.nodeIs(m.Status.NodeRef.Name, corev1.ConditionUnknown)
			again(w)
			began := w.clock.Now()
			m = w.untilPhase("m", v1beta1.MachineFailed)
			if m.Status.FailureReason != v1beta1.FailureInstanceVanished {
				t.Errorf("failureReason is %s", m.Status.FailureReason)
			}
			within(t, "the time until it was found", w.clock.Since(began), recheckAfter(w.cloud.Settle), maxRecheck)
			want(t, "calls", w.effects.calls(), "cloud get", "cloud get")
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
			if n := len(w.effects.of("cloud get")); n > 4 {
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

// A machine that is deleted right after its creation leaves no instance behind, although Delete says Gone as long as
// the cloud does not show it.
//
// Rules: finalizer-after-instance, gone-is-confirmed.
func TestDeletionRightAfterCreationLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, lag := range []time.Duration{time.Second, 20 * time.Second, 59 * time.Second} {
		for name, c := range map[string]struct {
			kind  func(*world)
			again func(*world)
		}{
			"removed within the call":                  {func(w *world) { w.cloud.Evasive = true }, func(*world) {}},
			"removed within the call, another process": {func(w *world) { w.cloud.Evasive = true }, (*world).restart},
			"takes its time to go": {func(w *world) { w.cloud.Shutdown = 10 * time.Second },
				func(*world) {}},
			"takes its time to go, another process": {func(w *world) { w.cloud.Shutdown = 10 * time.Second },
				(*world).restart},
			"only the provider ID was written": {func(w *world) { w.effects.next = cut{at: 3, dies: true} },
				(*world).restart},
			"without a target cluster, within the call": {func(w *world) { w.options.Target, w.cloud.Evasive = nil, true },
				(*world).restart},
			"it says that it found it when it is shown": {func(*world) {}, func(*world) {}},
			"booting, and takes its time to go in a lag": {func(w *world) {
				w.cloud.Boot, w.cloud.Shutdown = time.Minute, time.Minute
			}, func(*world) {}},
		} {
			t.Run(fmt.Sprintf("%s late, %s", lag, name), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, lagging(lag))
				c.kind(w)
				if w.options.Target == nil {
					w.restart()
				}
				w.class("small", "")
				w.born("m")
				_, _ = w.pass("m")
				if len(w.cloud.Live()) != 1 {
					t.Fatal("there is no instance")
				}
				began := w.clock.Now()
				w.delete("m")
				c.again(w)
				w.untilGone("m")
				w.wantNothingLeft("m")
				within(t, "the time until it was gone", w.clock.Since(began), 0, w.cloud.Settle+lag+w.cloud.Shutdown+40*time.Second)
				if n := len(w.effects.of("cloud delete")); n > 40 {
					t.Errorf("%d calls of Delete", n)
				}
			})
		}
	}
}

// The deletion of a machine that ran for long is not slower for it: what was accepted needs no confirmation, and a
// bare Gone is confirmed at once.
//
// Rules: deletion-order, gone-is-confirmed.
func TestTheDeletionOfAnOldMachineDoesNotWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind  func(*world)
		calls []string
	}{
		"removed within the call": {func(*world) {}, []string{"cloud delete"}},
		"removed within the call, not reported": {func(w *world) { w.cloud.Evasive = true },
			[]string{"cloud delete", "cloud get"}},
		"another process": {func(w *world) { w.cloud.Evasive = true; w.restart() },
			[]string{"cloud delete", "cloud get"}},
		"gone before": {func(w *world) { w.cloud.Vanish(w.get("m").Spec.ProviderID) },
			[]string{"cloud delete", "cloud get"}},
		"gone before, and the process is new": {func(w *world) { w.cloud.Vanish(w.get("m").Spec.ProviderID); w.restart() },
			[]string{"cloud delete", "cloud get"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			w.longRunning("m")
			c.kind(w)
			w.delete("m")
			w.reconcile("m")
			want(t, "calls", w.effects.calls(), c.calls...)
			want(t, "writes", w.effects.writes(), "API Node patch", "API Node delete", "API Machine patch")
			w.wantNothingLeft("m")
		})
	}
	t.Run("accepted by another process", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.cloud.Shutdown = 10 * time.Second
		w.class("small", "")
		w.running("m") // A new machine: that it was accepted is all that tells.
		w.delete("m")
		w.reconcile("m")
		w.step(10 * time.Second)
		w.restart()
		w.effects.clear()
		w.reconcile("m")
		want(t, "calls", w.effects.calls(), "cloud delete")
		w.wantNothingLeft("m")
	})
}

// An instance that is gone and still shown holds its machine until it is not, without a busy loop.
//
// Rule: gone-is-confirmed.
func TestAnInstanceThatIsShownAfterItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cloud.Evasive = true
	w.class("small", "")
	w.longRunning("m")
	w.cloud.Lag = 20 * time.Second
	w.delete("m")
	began := w.clock.Now()
	w.untilGone("m")
	within(t, "the time until it was gone", w.clock.Since(began), 20*time.Second, 30*time.Second)
	if n := len(w.effects.calls()); n > 30 {
		t.Errorf("%d calls", n)
	}
	w.wantNothingLeft("m")
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

// A cloud that is behind shows the old instance when the new one is asked for. The machine has one at a time anyway,
// and the old one is not taken for the new one.
//
// Rules: replacement-deletes-first, old-instance-not-taken-for-new.
func TestAReplacementInALaggingCloud(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]func(*world){
		"removed within the call": func(w *world) { w.cloud.Evasive = true },
		"takes its time to go":    func(w *world) { w.cloud.Shutdown = 3 * time.Second },
		"restarted all the time": func(w *world) {
			w.cloud.Shutdown = 3 * time.Second
			w.cloud.Will("Delete", fakecloud.Step{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, joining)
			kind(w)
			w.class("small", joinsWithToken)
			w.class("large", joinsWithToken)
			w.cloud.OnUpdate = func(provider.UpdateRequest) (provider.UpdateResult, error) {
				return provider.UpdateResult{Outcome: provider.UpdateNeedsReplacement, Reason: "of another size"}, nil
			}
			old := w.longRunning("m")
			w.cloud.Lag = 20 * time.Second
			w.update("m", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "large" })
			w.until("m", "the new instance", func() bool {
				if name == "restarted all the time" {
					w.restart()
				}
				m := w.get("m")
				return m.Status.Phase == v1beta1.MachineRunning && m.Status.Applied != nil && m.Status.Applied.ClassName == "large"
			})
			m := w.get("m")
			if live := w.cloud.Live(); len(live) != 1 || live[0].ProviderID != m.Spec.ProviderID ||
				m.Spec.ProviderID == old.Spec.ProviderID {
				t.Errorf("the machine has %s, had %s; live: %+v", m.Spec.ProviderID, old.Spec.ProviderID, live)
			}
			if made := w.cloud.Created(m.UID); made != 2 || len(w.cloud.Twins()) > 0 {
				t.Errorf("%d instances were made; twins: %v", made, w.cloud.Twins())
			}
			w.neverFailed()
			w.delete("m")
			w.untilGone("m")
			w.wantNothingLeft("m")
		})
	}
}

// Of a machine that is deleted in the middle of its replacement the new instance goes as well, although the cloud
// shows the old one by the same tags.
//
// Rules: unrecorded-instance-looked-up-twice, old-instance-not-taken-for-new.
func TestADeletionDuringAReplacementInALaggingCloud(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.class("large", "")
	w.cloud.OnUpdate = func(provider.UpdateRequest) (provider.UpdateResult, error) {
		return provider.UpdateResult{Outcome: provider.UpdateNeedsReplacement, Reason: "of another size"}, nil
	}
	old := w.longRunning("m")
	w.cloud.Lag = 20 * time.Second
	w.cloud.Will("Create", fakecloud.Step{Err: provider.Errorf(provider.DeadlineExceeded, "no answer"), Late: 5 * time.Second})
	w.update("m", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "large" })
	w.reconcile("m")
	if in, err := w.cloud.Find("", "cluster", provider.Machine{UID: old.UID}); err != nil || in.ProviderID != old.Spec.ProviderID ||
		w.get("m").LaunchAttempt() != 2 {
		t.Fatalf("the cloud shows %v, %v of attempt %d", in, err, w.get("m").LaunchAttempt())
	}
	w.delete("m")
	w.untilGone("m")
	w.step(time.Hour)
	w.wantNothingLeft("m")
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
