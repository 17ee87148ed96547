package machine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Rule: stopped-instance-unhealthy.
func TestInstanceStoppedInTheCloudWithoutATargetCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noTarget)
	w.class("small", "#cloud-config")
	w.createMachine("m")
	m := w.untilPhase("m", v1beta1.MachineAvailable)

	w.cloud.SetState(m.Spec.ProviderID, provider.StateStopped, "")
	w.process.CheckInstance(m)
	w.reconcile("m")
	m = w.get("m")
	w.wantPhase(m, v1beta1.MachineUnhealthy)
	w.wantCondition(m, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonInstanceStopped)
	if m.Status.Instance.State != v1beta1.InstanceStopped {
		t.Errorf("the state of the instance is %s", m.Status.Instance.State)
	}
	w.wantRest("m")

	w.restart()
	w.cloud.SetState(m.Spec.ProviderID, provider.StateRunning, "")
	w.process.CheckInstance(m)
	w.reconcile("m")
	m = w.get("m")
	w.wantPhase(m, v1beta1.MachineAvailable)
	w.wantCondition(m, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonMachineReady)
	w.wantRest("m")
}

// Rule: stopped-instance-unhealthy.
func TestInstanceStoppedInTheCloudWithANode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "#cloud-config")
	m := w.running("m")

	// The Node is Ready for some time after its kubelet has stopped.
	w.cloud.SetState(m.Spec.ProviderID, provider.StateStopped, "")
	w.process.CheckInstance(m)
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonMachineReady)

	w.setNodeReady(nodeNameOf(w.namespace, "m"), corev1.ConditionUnknown)
	w.reconcile("m")
	m = w.get("m")
	w.wantPhase(m, v1beta1.MachineUnhealthy)
	w.wantCondition(m, v1beta1.ConditionNodeHealthy, metav1.ConditionFalse, v1beta1.ReasonInstanceStopped)
	w.wantCondition(m, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonInstanceStopped)
	w.wantRest("m")

	// The instance runs again, but its kubelet does not report.
	w.cloud.SetState(m.Spec.ProviderID, provider.StateRunning, "")
	w.process.CheckInstance(m)
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionNodeHealthy, metav1.ConditionFalse, v1beta1.ReasonNodeUnresponsive)
	w.setNodeReady(nodeNameOf(w.namespace, "m"), corev1.ConditionTrue)
	w.reconcile("m")
	m = w.get("m")
	w.wantPhase(m, v1beta1.MachineRunning)
	if m.Status.Instance.State != v1beta1.InstanceRunning {
		t.Errorf("the state of the instance is %s", m.Status.Instance.State)
	}
	w.wantRest("m")
}

// Rule: update-done-while-stopped.
func TestUpdateOfAStoppedInstanceIsNotDone(t *testing.T) {
	t.Parallel()
	a := &scriptedUpdates{given: []provider.UpdateResult{
		{Outcome: provider.UpdateDone, Instance: &provider.Instance{State: provider.StateStopped}},
		{Outcome: provider.UpdateDone, Instance: &provider.Instance{State: provider.StateRunning}},
	}}
	w, _ := changed(t, a)
	w.reconcile("m")
	m := w.get("m")
	w.wantCondition(m, v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUpdating)
	if m.Status.Applied.ClassName != "small" {
		t.Errorf("applied is %+v", m.Status.Applied)
	}
	w.runUntil("m", "the update", func() bool {
		return w.get("m").Status.Applied.ClassName == "large"
	})
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)
}
