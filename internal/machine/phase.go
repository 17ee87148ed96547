package machine

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

func (p *pass) summarize() {
	m := p.machine
	m.Status.Phase = phaseOf(m, p.Target != nil)
	blocker := p.blocker()
	if blocker == nil {
		p.setCondition(v1beta1.ConditionReady, true, v1beta1.ReasonMachineReady, "")
		return
	}
	p.setCondition(v1beta1.ConditionReady, false, blocker.Reason, blocker.Message)
}

func (p *pass) blocker() *metav1.Condition {
	m := p.machine
	if !m.DeletionTimestamp.IsZero() {
		return &metav1.Condition{Reason: v1beta1.ReasonDeletionStarted, Message: "The machine is being deleted."}
	}
	if machinestate.IsInterrupted(m) && m.Status.FailureReason == "" {
		return meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionInterruptionNotice)
	}
	if p.waitsFor != nil {
		return p.waitsFor
	}
	if rebooting := rebootBlocker(m); rebooting != nil {
		return rebooting
	}
	if stopped := powerBlocker(m); stopped != nil {
		return stopped
	}
	drained := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDrained)
	if m.IsReplacing() || drained != nil && !machinestate.IsInterrupted(m) {
		return meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate)
	}
	order := []string{v1beta1.ConditionLaunched, v1beta1.ConditionRegistered, v1beta1.ConditionNodeHealthy}
	if p.Target == nil {
		order = order[:1]
	}
	for _, kind := range order {
		c := meta.FindStatusCondition(m.Status.Conditions, kind)
		if c == nil {
			return &metav1.Condition{Reason: v1beta1.ReasonPending, Message: "The condition " + kind + " is not set yet."}
		}
		if c.Status != metav1.ConditionTrue || c.Reason == v1beta1.ReasonWaitingForStartupTaints ||
			c.Reason == v1beta1.ReasonWaitingForReadinessGates {
			return c
		}
	}
	switch {
	case p.Target != nil || m.Status.Phase == v1beta1.MachineAvailable:
		return nil
	case m.Status.Instance != nil && m.Status.Instance.State == v1beta1.InstanceStopped:
		return &metav1.Condition{Reason: v1beta1.ReasonInstanceStopped, Message: instanceStopped}
	}
	return &metav1.Condition{Reason: v1beta1.ReasonPending, Message: "The instance is not running yet."}
}

func phaseOf(m *v1beta1.Machine, hasTarget bool) v1beta1.MachinePhase {
	is := func(kind string) bool { return meta.IsStatusConditionTrue(m.Status.Conditions, kind) }
	launched := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched)
	if m.Status.FailureReason != "" {
		return v1beta1.MachineFailed
	}
	if isUpdating(m) {
		return v1beta1.MachineUpdating
	}
	if m.Status.Power != nil {
		return v1beta1.MachineStopped
	}
	switch old := m.Status.Phase; {
	case launched == nil:
		return v1beta1.MachinePending
	case launched.Status != metav1.ConditionTrue:
		if isTrying(launched.Reason) {
			return v1beta1.MachineProvisioning
		}
		return v1beta1.MachinePending
	case !hasTarget:
		if old == v1beta1.MachineAvailable || old == v1beta1.MachineUnhealthy {
			return old
		}
		if old == v1beta1.MachineStopped {
			return v1beta1.MachineUnhealthy
		}
		return v1beta1.MachineProvisioned
	case old == v1beta1.MachineRunning || old == v1beta1.MachineUnhealthy || old == v1beta1.MachineStopped ||
		old == v1beta1.MachineUpdating && m.Status.NodeRef != nil:
		if is(v1beta1.ConditionRegistered) && is(v1beta1.ConditionNodeHealthy) {
			return v1beta1.MachineRunning
		}
		return v1beta1.MachineUnhealthy
	default:
		return v1beta1.MachineProvisioned
	}
}
