package machine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// Rules: failure-reason-kept, what-counts-as-disrupted.
func TestTheFailureReasonStaysDuringTheDeletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.longRunning("m")
	w.cloud.Vanish(m.Spec.ProviderID)
	w.setNodeReady(m.Status.NodeRef.Name, corev1.ConditionUnknown)
	m = w.untilPhase("m", v1beta1.MachineFailed)

	hooked := m.DeepCopy()
	hooked.Spec.LifecycleHooks.PreDrain = []v1beta1.LifecycleHook{{Name: "backup.example.com", Owner: "backup"}}
	if err := w.api.Patch(t.Context(), hooked, client.MergeFrom(m)); err != nil {
		t.Fatal(err)
	}
	w.delete("m")
	m = w.untilPhase("m", v1beta1.MachineDeleting)
	if m.Status.FailureReason != v1beta1.FailureInstanceVanished || m.Status.FailureMessage == "" {
		t.Errorf("during the deletion the failure is %q: %q", m.Status.FailureReason, m.Status.FailureMessage)
	}
	if reason, counts := disruption.ReasonOf(m); counts || !machinestate.HasVanished(m) {
		t.Errorf("a machine without an instance counts as disrupted by %s", reason)
	}

	released := m.DeepCopy()
	released.Spec.LifecycleHooks.PreDrain = nil
	if err := w.api.Patch(t.Context(), released, client.MergeFrom(m)); err != nil {
		t.Fatal(err)
	}
	w.untilGone("m")
	w.wantNothingLeft("m")
}
