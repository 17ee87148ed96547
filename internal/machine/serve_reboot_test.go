package machine

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

func (w *world) requestReboot(value string) {
	w.t.Helper()
	w.update("m", func(m *v1beta1.Machine) { set(&m.Annotations, v1beta1.AnnotationReboot, value) })
}

// bootable returns a world with the Running machine "m", whose Node has a boot ID.
func bootable(t *testing.T, options ...func(*world)) *world {
	w := newWorld(t, options...)
	w.class("small", "#cloud-config")
	w.running("m")
	w.boot()
	w.reconcile("m")
	return w
}

// silence makes the kubelet of the running instance stop reporting.
func (w *world) silence() {
	w.t.Helper()
	node := w.getNode(nodeNameOf(w.namespace, "m"))
	readyCondition(node).Status = corev1.ConditionUnknown
	if err := w.api.Status().Update(w.t.Context(), node); err != nil {
		w.t.Fatal(err)
	}
	w.reconcile("m")
}

// untilReboot runs passes until status.reboot has the given state.
func (w *world) untilReboot(state v1beta1.RebootState, each ...func()) *v1beta1.Machine {
	w.t.Helper()
	w.runUntil("m", "the state of the reboot "+string(state), func() bool {
		if in := w.cloud.LiveInstances()[0]; in.State != provider.StateRunning || in.Boots > 0 {
			w.boot()
		}
		for _, f := range each {
			f()
		}
		r := w.get("m").Status.Reboot
		return r != nil && r.State == state
	})
	return w.get("m")
}

func (w *world) outOfService() bool {
	return slices.ContainsFunc(w.getNode(nodeNameOf(w.namespace, "m")).Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeOutOfService && t.Effect == corev1.TaintEffectNoExecute
	})
}

func (w *world) wantBoots(want int) {
	w.t.Helper()
	if in := w.cloud.LiveInstances()[0]; in.Boots != want {
		w.t.Errorf("the instance was started %d times, want %d", in.Boots, want)
	}
}

// Rules: reboot-once, reboot-steps, reboot-recorded-first.
func TestReboot(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change  func(*world)
		restart bool
		want    []provider.PowerAction
	}{
		"at once":                     {func(*world) {}, false, []provider.PowerAction{provider.PowerOff, provider.PowerOn}},
		"slowly, with new processes":  {func(w *world) { w.cloud.PowerDelay = 90 * time.Second }, true, []provider.PowerAction{provider.PowerOff, provider.PowerOn}},
		"outdated reads of the cloud": {func(w *world) { w.cloud.ReadLag = 10 * time.Second }, false, []provider.PowerAction{provider.PowerOff, provider.PowerOn}},
		"an ignored shutdown": {func(w *world) { w.cloud.IgnoreShutdown = true }, false,
			[]provider.PowerAction{provider.PowerOff, provider.PowerForceOff, provider.PowerOn}},
		"lost answers": {func(w *world) {
			lost := provider.Errorf(provider.Unavailable, "no answer")
			w.cloud.Script("SetPower", []fakecloud.Step{{Err: lost, EffectDelay: time.Second}, {Err: lost}, {},
				{Err: lost, EffectDelay: time.Second}}...)
		}, false, []provider.PowerAction{provider.PowerOff, provider.PowerOn}},
	} {
		t.Run(name, func(t *testing.T) {
			w := bootable(t)
			before, node := w.get("m"), w.getNode(nodeNameOf(w.namespace, "m"))
			tc.change(w)
			w.requestReboot("one")
			w.untilReboot(v1beta1.RebootSucceeded, func() {
				if tc.restart {
					w.restart()
				}
				if w.outOfService() {
					t.Error("the node of a drained machine is out of service")
				}
			})
			w.wantActions(tc.want...)
			for _, req := range w.cloud.PowerRequests() {
				if req.Action != provider.PowerOn && !req.KeepCapacity {
					t.Errorf("the capacity may be lost: %+v", req)
				}
			}
			m := w.untilReady()
			w.wantPhase(m, v1beta1.MachineRunning)
			w.wantCondition(m, v1beta1.ConditionRebooted, metav1.ConditionTrue, v1beta1.ReasonRebooted)
			after := w.getNode(node.Name)
			if after.UID != node.UID || after.Spec.Unschedulable || m.Spec.ProviderID != before.Spec.ProviderID {
				t.Errorf("node %s, before %s; cordoned: %t; instance %s", after.UID, node.UID, after.Spec.Unschedulable, m.Spec.ProviderID)
			}
			if m.Status.Power != nil || m.Status.Reboot.Request != "one" || m.Status.Reboot.CompletionTime == nil ||
				meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDrained) != nil {
				t.Errorf("power %+v, reboot %+v, conditions %v", m.Status.Power, m.Status.Reboot, m.Status.Conditions)
			}
			w.restart()
			w.step(time.Hour)
			w.reconcile("m")
			w.wantBoots(1)
			w.wantRest("m")

			w.requestReboot("two")
			w.runUntil("m", "the second reboot", func() bool {
				w.boot()
				r := w.get("m").Status.Reboot
				return r.Request == "two" && r.State == v1beta1.RebootSucceeded
			})
			w.wantBoots(2)
			w.update("m", func(m *v1beta1.Machine) { delete(m.Annotations, v1beta1.AnnotationReboot) })
			w.reconcile("m")
			if m := w.get("m"); meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRebooted) != nil || m.Status.Reboot == nil {
				t.Errorf("conditions %v, reboot %v", m.Status.Conditions, m.Status.Reboot)
			}
			w.wantBoots(2)
		})
	}
}

// Rules: reboot-silent.
func TestRebootOfAMachineWhoseKubeletIsSilent(t *testing.T) {
	t.Parallel()
	w := bootable(t)
	w.silence()
	w.cloud.Fail("SetPower", nil, provider.Errorf(provider.ResourceExhausted, "no capacity"))
	uid := w.getNode(nodeNameOf(w.namespace, "m")).UID
	w.requestReboot("")
	w.runUntil("m", "the lack of capacity", func() bool {
		c := meta.FindStatusCondition(w.get("m").Status.Conditions, v1beta1.ConditionRebooted)
		return c != nil && c.Reason == v1beta1.ReasonInsufficientResources
	})
	m := w.get("m")
	w.wantCondition(m, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonInsufficientResources)
	if !w.outOfService() || !m.Status.Reboot.OutOfService || !m.Status.Reboot.Unresponsive || !machinestate.IsStopped(m) {
		t.Errorf("out of service: %t, reboot %+v", w.outOfService(), m.Status.Reboot)
	}
	if meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDrained) != nil {
		t.Error("a silent kubelet was waited for")
	}
	w.untilReboot(v1beta1.RebootSucceeded)
	w.wantActions(provider.PowerForceOff, provider.PowerOn)
	m = w.untilReady()
	if node := w.getNode(nodeNameOf(w.namespace, "m")); w.outOfService() || node.Spec.Unschedulable || node.UID != uid ||
		m.Status.Reboot.OutOfService {
		t.Errorf("node %+v, reboot %+v", node.Spec, m.Status.Reboot)
	}
	w.wantBoots(1)
	w.wantRest("m")
}

// Rules: reboot-again-while-booting, reboot-timeout.
func TestRebootThatDoesNotHeal(t *testing.T) {
	t.Parallel()
	w := bootable(t)
	w.silence()
	booting := func() bool {
		power := w.get("m").Status.Power
		return power != nil && power.Step == v1beta1.PowerStepBooting
	}
	w.requestReboot("one")
	w.runUntil("m", "the boot", booting)
	w.requestReboot("two")
	w.runUntil("m", "the second boot", func() bool { return w.get("m").Status.Reboot.Request == "two" && booting() })
	w.wantBoots(2)
	began := w.get("m").Status.Reboot.StartTime.Time
	m := w.get("m")
	w.runUntil("m", "the end", func() bool { return w.get("m").Status.Reboot.State == v1beta1.RebootFailed })
	if took := w.clock.Now().Sub(began); took < m.Spec.Timeouts.CreationOrDefault() {
		t.Errorf("the reboot failed after %s", took)
	}
	m = w.get("m")
	w.wantCondition(m, v1beta1.ConditionRebooted, metav1.ConditionFalse, v1beta1.ReasonRebootFailed)
	w.wantCondition(m, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonNodeUnresponsive)
	if m.Status.Power != nil || !w.outOfService() {
		t.Errorf("power %+v, out of service: %t", m.Status.Power, w.outOfService())
	}
	w.restart()
	w.reconcile("m")
	w.wantBoots(2)
	w.untilReady() // An administrator has repaired the node.
	if w.outOfService() {
		t.Error("the node is still out of service")
	}
	w.wantRest("m")
}

// Rule: reboot-not-supported.
func TestRebootIsNotSupported(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*world){
		"by the driver":     func(w *world) { w.options.Power = nil; w.restart() },
		"for this instance": func(w *world) { w.cloud.Fail("SetPower", provider.Errorf(provider.Unimplemented, "local disk")) },
	} {
		t.Run(name, func(t *testing.T) {
			w := bootable(t)
			change(w)
			w.requestReboot("one")
			m := w.untilReboot(v1beta1.RebootNotSupported)
			w.wantCondition(m, v1beta1.ConditionRebooted, metav1.ConditionFalse, v1beta1.ReasonPowerNotSupported)
			m = w.untilReady()
			if m.Status.Power != nil || w.getNode(nodeNameOf(w.namespace, "m")).Spec.Unschedulable {
				t.Errorf("power %+v, conditions %v", m.Status.Power, m.Status.Conditions)
			}
			before := len(w.cloud.PowerRequests())
			w.restart()
			w.step(time.Hour)
			w.reconcile("m")
			if n := len(w.cloud.PowerRequests()) - before; n != 0 {
				t.Errorf("the provider was asked %d times again", n)
			}
			w.wantRest("m")
			w.wantBoots(0)
		})
	}
}

// Rules: reboot-waits, reboot-cancelled.
func TestRebootAndOtherChanges(t *testing.T) {
	t.Parallel()
	t.Run("the machine is stopped during the reboot", func(t *testing.T) {
		w := bootable(t)
		w.cloud.PowerDelay = time.Minute
		w.requestReboot("one")
		w.untilReboot(v1beta1.RebootRebooting)
		w.setPowerState(v1beta1.PowerStopped)
		m := w.untilPower(v1beta1.ReasonStopped)
		w.wantCondition(m, v1beta1.ConditionRebooted, metav1.ConditionFalse, v1beta1.ReasonRebootCancelled)
		w.wantBoots(0)
		w.requestReboot("two")
		w.reconcile("m")
		w.wantCondition(w.get("m"), v1beta1.ConditionRebooted, metav1.ConditionFalse, v1beta1.ReasonStopped)
		w.setPowerState(v1beta1.PowerRunning)
		w.untilReboot(v1beta1.RebootSucceeded)
		w.wantBoots(2)
	})
	t.Run("the machine is paused during the reboot", func(t *testing.T) {
		w := bootable(t)
		w.cloud.PowerDelay = time.Minute
		w.requestReboot("one")
		w.untilReboot(v1beta1.RebootRebooting)
		w.update("m", func(m *v1beta1.Machine) { set(&m.Annotations, v1beta1.AnnotationPaused, "") })
		w.reconcile("m")
		before := len(w.cloud.PowerRequests())
		w.step(time.Hour)
		w.reconcile("m")
		if n := len(w.cloud.PowerRequests()) - before; n != 0 {
			t.Errorf("the provider was asked %d times for a paused machine", n)
		}
		w.update("m", func(m *v1beta1.Machine) { delete(m.Annotations, v1beta1.AnnotationPaused) })
		w.untilReboot(v1beta1.RebootSucceeded)
		w.wantBoots(1)
	})
	t.Run("the machine is deleted during the reboot", func(t *testing.T) {
		w := bootable(t)
		w.cloud.PowerDelay = time.Minute
		w.requestReboot("one")
		w.untilReboot(v1beta1.RebootRebooting)
		w.delete("m")
		w.untilGone("m")
		w.wantActions(provider.PowerOff)
	})
	t.Run("the specification changes during the reboot", func(t *testing.T) {
		a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateDone}}}
		w := bootable(t)
		w.cloud.OnUpdate = a.update
		w.class("large", "")
		w.cloud.PowerDelay = time.Minute
		w.requestReboot("one")
		w.untilReboot(v1beta1.RebootRebooting)
		w.update("m", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "large" })
		w.untilReboot(v1beta1.RebootSucceeded, func() {
			if len(a.asked) != 0 && machinestate.IsRebooting(w.get("m")) {
				t.Error("the instance was updated during the reboot")
			}
		})
		w.runUntil("m", "the update", func() bool { return machinestate.IsUpToDate(w.get("m")) })
		if len(a.asked) == 0 {
			t.Error("the driver was not asked for the update")
		}
	})
	t.Run("the reboot is requested during an update", func(t *testing.T) {
		a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateInProgress},
			{Outcome: provider.UpdateInProgress}, {Outcome: provider.UpdateDone}}}
		w, _ := changed(t, a)
		w.boot()
		w.reconcile("m")
		w.requestReboot("one")
		w.runUntil("m", "the reboot waits", func() bool {
			c := meta.FindStatusCondition(w.get("m").Status.Conditions, v1beta1.ConditionRebooted)
			return c != nil && c.Reason == v1beta1.ReasonUpdating
		})
		w.wantActions()
		w.untilReboot(v1beta1.RebootSucceeded)
		if !machinestate.IsUpToDate(w.get("m")) {
			t.Error("the update is not done")
		}
		w.wantBoots(1)
	})
}

// Without a target cluster, there is no Node to wait for.
//
// Rules: reboot-once, reboot-recorded-first.
func TestRebootWithoutATargetCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noTarget)
	w.class("small", "")
	w.createMachine("m")
	w.untilPhase("m", v1beta1.MachineAvailable)
	w.requestReboot("one")
	w.runUntil("m", "the end of the reboot", func() bool {
		r := w.get("m").Status.Reboot
		return r != nil && r.CompletionTime != nil
	})
	if r := w.get("m").Status.Reboot; r.State != v1beta1.RebootSucceeded {
		t.Errorf("the reboot ended with %s: %+v", r.State, w.get("m").Status.Conditions)
	}
	w.wantPhase(w.get("m"), v1beta1.MachineAvailable)
}
