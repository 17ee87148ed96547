package machine

import (
	"slices"
	"strings"
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

func (w *world) setPowerState(state v1beta1.PowerState) {
	w.t.Helper()
	w.update("m", func(m *v1beta1.Machine) { m.Spec.PowerState = state })
}

// boot simulates the kubelets: the Node of a stopped instance is silent, and the Node of a started instance is Ready
// with another boot ID.
func (w *world) boot() {
	w.t.Helper()
	in := w.cloud.LiveInstances()[0]
	name := nodeNameOf(w.namespace, "m")
	node := w.getNode(name)
	if node == nil {
		return
	}
	before := node.DeepCopy()
	status := corev1.ConditionUnknown
	if in.State == provider.StateRunning {
		status, node.Status.NodeInfo.BootID = corev1.ConditionTrue, strings.Repeat("boot", in.Boots+1)
	}
	if readyCondition(before).Status == status && before.Status.NodeInfo.BootID == node.Status.NodeInfo.BootID {
		return
	}
	readyCondition(node).Status = status
	if err := w.api.Status().Update(w.t.Context(), node); err != nil {
		w.t.Fatal(err)
	}
}

// untilPower runs passes until the condition PowerStateReached has the given reason.
func (w *world) untilPower(reason string, each ...func()) *v1beta1.Machine {
	w.t.Helper()
	w.runUntil("m", "PowerStateReached: "+reason, func() bool {
		w.boot()
		for _, f := range each {
			f()
		}
		c := meta.FindStatusCondition(w.get("m").Status.Conditions, v1beta1.ConditionPowerStateReached)
		return c != nil && c.Reason == reason
	})
	return w.get("m")
}

func (w *world) untilReady() *v1beta1.Machine {
	w.t.Helper()
	w.runUntil("m", "Ready", func() bool { w.boot(); return machinestate.IsReady(w.get("m")) })
	return w.get("m")
}

func (w *world) actions() (all []provider.PowerAction) {
	for _, req := range w.cloud.PowerRequests() {
		all = append(all, req.Action)
	}
	return slices.Compact(all)
}

func (w *world) wantActions(want ...provider.PowerAction) {
	w.t.Helper()
	if got := w.actions(); !slices.Equal(got, want) {
		w.t.Errorf("the provider was asked for %v, want %v", got, want)
	}
}

// Rules: power-stopped, power-running, power-recorded-first.
func TestStopAndStart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change  func(*world)
		restart bool
	}{
		"at once":                     {func(*world) {}, false},
		"slowly":                      {func(w *world) { w.cloud.PowerDelay = 90 * time.Second }, false},
		"slowly, with new processes":  {func(w *world) { w.cloud.PowerDelay = 90 * time.Second }, true},
		"outdated reads of the cloud": {func(w *world) { w.cloud.ReadLag = 10 * time.Second }, false},
		"lost answers": {func(w *world) {
			lost := provider.Errorf(provider.Unavailable, "no answer")
			w.cloud.Script("SetPower", []fakecloud.Step{{Err: lost, EffectDelay: time.Second}, {Err: lost}, {},
				{Err: lost, EffectDelay: time.Second}}...)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.class("small", "#cloud-config")
			before := w.running("m")
			w.boot()
			w.reconcile("m")
			node := w.getNode(nodeNameOf(w.namespace, "m"))
			tc.change(w)
			each := func() {
				if tc.restart {
					w.restart()
				}
			}

			w.setPowerState(v1beta1.PowerStopped)
			m := w.untilPower(v1beta1.ReasonStopped, each)
			w.wantPhase(m, v1beta1.MachineStopped)
			w.wantCondition(m, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonStopped)
			w.wantCondition(m, v1beta1.ConditionDrained, metav1.ConditionTrue, v1beta1.ReasonDrained)
			if in := w.cloud.LiveInstances()[0]; in.State != provider.StateStopped ||
				m.Status.Instance.State != v1beta1.InstanceStopped {
				t.Errorf("the instance is %s, and the status says %s", in.State, m.Status.Instance.State)
			}
			if !w.getNode(node.Name).Spec.Unschedulable {
				t.Error("the node is not cordoned")
			}
			w.boot()
			w.reconcile("m")
			w.wantRest("m")

			w.setPowerState(v1beta1.PowerRunning)
			m = w.untilReady()
			w.wantPhase(m, v1beta1.MachineRunning)
			w.wantCondition(m, v1beta1.ConditionPowerStateReached, metav1.ConditionTrue, v1beta1.ReasonRunning)
			if after := w.getNode(node.Name); after.UID != node.UID || after.Spec.Unschedulable {
				t.Errorf("the node has the UID %s, before %s; cordoned: %t", after.UID, node.UID, after.Spec.Unschedulable)
			}
			if m.Spec.ProviderID != before.Spec.ProviderID || m.Status.Power != nil ||
				meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDrained) != nil {
				t.Errorf("the instance is %s, power %+v, conditions %v", m.Spec.ProviderID, m.Status.Power, m.Status.Conditions)
			}
			w.wantActions(provider.PowerOff, provider.PowerOn)
			w.wantRest("m")
		})
	}
}

// The kubelet of a stopped instance may still count as Ready for some time.
//
// Rule: power-running.
func TestNodeIsReadyOnlyAfterItHasBootedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "#cloud-config")
	w.running("m")
	w.boot()
	w.reconcile("m")
	w.setPowerState(v1beta1.PowerStopped)
	w.runUntil("m", "the stop", func() bool { return w.get("m").Status.Instance.State == v1beta1.InstanceStopped })
	w.setPowerState(v1beta1.PowerRunning)
	w.runUntil("m", "the start", func() bool { return w.get("m").Status.Instance.State == v1beta1.InstanceRunning })
	w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineStopped)
	w.wantCondition(m, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonNodeUnresponsive)
	w.boot()
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
}

// Rule: power-stopped.
func TestAnInstanceThatIgnoresTheShutdown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "#cloud-config")
	w.running("m")
	w.cloud.IgnoreShutdown = true
	w.setPowerState(v1beta1.PowerStopped)
	w.untilPower(v1beta1.ReasonShuttingDown)
	began := w.get("m").Status.Power.Since.Time
	w.restart()
	w.untilPower(v1beta1.ReasonStopped)
	w.wantActions(provider.PowerOff, provider.PowerForceOff)
	if took := w.clock.Now().Sub(began); took < v1beta1.ShutdownTimeout || took > v1beta1.ShutdownTimeout+time.Minute {
		t.Errorf("the instance was stopped after %s", took)
	}
}

// Rule: power-shutdown-completed.
func TestAShutdownIsCompletedBeforeTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "#cloud-config")
	w.running("m")
	w.cloud.PowerDelay = time.Minute
	w.setPowerState(v1beta1.PowerStopped)
	w.untilPower(v1beta1.ReasonShuttingDown)
	w.setPowerState(v1beta1.PowerRunning)
	w.untilReady()
	w.wantActions(provider.PowerOff, provider.PowerOn)
	if in := w.cloud.LiveInstances()[0]; in.Boots != 1 {
		t.Errorf("the instance was started %d times", in.Boots)
	}
}

// Rule: power-unmanaged.
func TestWithoutAPowerStateNothingIsSwitched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "#cloud-config")
	w.running("m")
	w.cloud.IgnoreShutdown = true
	w.setPowerState(v1beta1.PowerStopped)
	w.untilPower(v1beta1.ReasonShuttingDown)
	w.setPowerState("")
	m := w.untilReady()
	if meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionPowerStateReached) != nil {
		t.Errorf("conditions: %v", m.Status.Conditions)
	}
	if w.getNode(nodeNameOf(w.namespace, "m")).Spec.Unschedulable {
		t.Error("the node is still cordoned")
	}
	before := len(w.cloud.PowerRequests())
	w.step(2 * v1beta1.ShutdownTimeout)
	w.reconcile("m")
	if n := len(w.cloud.PowerRequests()) - before; n != 0 {
		t.Errorf("the provider was asked %d times", n)
	}
	w.wantRest("m")
}

// Rule: power-errors.
func TestPowerErrors(t *testing.T) {
	t.Parallel()
	for code, want := range map[provider.Code]string{
		provider.ResourceExhausted: v1beta1.ReasonInsufficientResources,
		provider.PermissionDenied:  v1beta1.ReasonCredentialsRefused,
		provider.Unavailable:       v1beta1.ReasonProviderUnavailable, provider.FailedPrecondition: v1beta1.ReasonPowerError,
		provider.Unknown: v1beta1.ReasonPowerError,
	} {
		t.Run(string(code), func(t *testing.T) {
			w := newWorld(t)
			w.class("small", "#cloud-config")
			w.running("m")
			w.setPowerState(v1beta1.PowerStopped)
			w.untilPower(v1beta1.ReasonStopped)
			w.cloud.Fail("SetPower", provider.Errorf(code, "the reason"), provider.Errorf(code, "the reason"))
			w.setPowerState(v1beta1.PowerRunning)
			m := w.untilPower(want)
			w.wantCondition(m, v1beta1.ConditionReady, metav1.ConditionFalse, want)
			if !machinestate.IsStopped(m) {
				t.Error("the machine would be replaced")
			}
			w.untilReady()
		})
	}
}

// Rule: power-not-supported.
func TestPowerIsNotSupported(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*world){
		"by the driver":     func(w *world) { w.options.Power = nil; w.restart() },
		"for this instance": func(w *world) { w.cloud.Fail("SetPower", provider.Errorf(provider.Unimplemented, "local disk")) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.class("small", "#cloud-config")
			w.running("m")
			change(w)
			w.setPowerState(v1beta1.PowerStopped)
			w.untilPower(v1beta1.ReasonPowerNotSupported)
			w.runUntil("m", "Ready", func() bool { return machinestate.IsReady(w.get("m")) })
			if m := w.get("m"); machinestate.IsStopped(m) || w.getNode(nodeNameOf(w.namespace, "m")).Spec.Unschedulable {
				t.Errorf("the machine counts as stopped, or its node is cordoned: %+v", m.Status.Conditions)
			}
			before := len(w.cloud.PowerRequests())
			w.restart()
			w.step(time.Hour)
			w.reconcile("m")
			if n := len(w.cloud.PowerRequests()) - before; n != 0 {
				t.Errorf("the provider was asked %d times again", n)
			}
			w.wantRest("m")
			w.setPowerState("")
			w.untilReady()
		})
	}
}

// Rule: power-stopped.
func TestAnInstanceThatAnotherClientStartsIsStoppedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "#cloud-config")
	m := w.running("m")
	w.boot()
	w.reconcile("m")
	w.setPowerState(v1beta1.PowerStopped)
	w.untilPower(v1beta1.ReasonStopped)
	w.boot()
	w.reconcile("m")
	w.cloud.SetState(m.Spec.ProviderID, provider.StateRunning, "")
	node := w.getNode(nodeNameOf(w.namespace, "m"))
	node.Status.NodeInfo.BootID = "another"
	readyCondition(node).Status = corev1.ConditionTrue
	if err := w.api.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	w.runUntil("m", "another stop", func() bool { return w.cloud.LiveInstances()[0].State == provider.StateStopped })
	w.wantActions(provider.PowerOff)
}

// Rule: power-running.
func TestAnInstanceThatAnotherClientStopsIsStartedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noTarget)
	w.class("small", "#cloud-config")
	w.createMachine("m", func(m *v1beta1.Machine) { m.Spec.PowerState = v1beta1.PowerRunning })
	m := w.untilPhase("m", v1beta1.MachineAvailable)
	if len(w.cloud.PowerRequests()) != 0 {
		t.Error("the provider was asked although the instance runs")
	}
	w.cloud.SetState(m.Spec.ProviderID, provider.StateStopped, "")
	w.process.CheckInstance(m)
	w.runUntil("m", "another start", func() bool { return w.cloud.LiveInstances()[0].State == provider.StateRunning })
	w.wantActions(provider.PowerOn)
	w.wantPhase(w.get("m"), v1beta1.MachineAvailable)
	w.wantRest("m")
}

// Rule: power-update-waits.
func TestAnUpdateWaitsWhileTheInstanceIsStopped(t *testing.T) {
	t.Parallel()
	a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateDone}}}
	w := newWorld(t)
	w.cloud.OnUpdate = a.update
	w.class("small", "")
	w.class("large", "")
	w.running("m")
	w.setPowerState(v1beta1.PowerStopped)
	w.untilPower(v1beta1.ReasonStopped)
	w.update("m", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "large" })
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUpdatePending)
	if len(a.asked) != 0 {
		t.Errorf("the driver was asked for %v", a.asked)
	}
	w.setPowerState(v1beta1.PowerRunning)
	w.untilReady()
	w.runUntil("m", "the update", func() bool { return machinestate.IsUpToDate(w.get("m")) })
	if len(a.asked) == 0 {
		t.Error("the driver was not asked for the update")
	}
}

// Rule: power-update-waits.
func TestAStopWaitsForAnUpdate(t *testing.T) {
	t.Parallel()
	a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateInProgress},
		{Outcome: provider.UpdateInProgress}, {Outcome: provider.UpdateDone}}}
	w, _ := changed(t, a)
	w.reconcile("m")
	w.setPowerState(v1beta1.PowerStopped)
	w.untilPower(v1beta1.ReasonUpdating)
	m := w.untilPower(v1beta1.ReasonStopped)
	w.wantCondition(m, v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)
	w.wantActions(provider.PowerOff)
}

// Rule: power-deletion.
func TestAStoppedMachineIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "#cloud-config")
	w.running("m")
	w.setPowerState(v1beta1.PowerStopped)
	w.untilPower(v1beta1.ReasonStopped)
	w.delete("m")
	w.untilGone("m")
	if left := w.cloud.LiveInstances(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	w.wantActions(provider.PowerOff)
}
