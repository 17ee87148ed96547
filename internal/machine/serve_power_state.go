package machine

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/machine/preservation"
)

// reachPowerState stops or starts the instance, so that it has the state in spec.powerState. The instance of a paused,
// preserved or interrupted Machine is not changed.
func (p *pass) reachPowerState(ctx context.Context) (progress, error) {
	m := p.machine
	switch {
	case machinestate.IsRebooting(m):
		return next, nil
	case m.Spec.PowerState == "":
		p.endPower()
		return next, nil
	case machinestate.IsPaused(m) || p.unsupportedSchema(m) != "":
		p.suspendDrain()
		return next, nil
	case preservation.IsPreserved(m) || machinestate.IsInterrupted(m) || p.outage():
		return next, nil
	}
	report, err := p.powerReport(ctx)
	if err != nil {
		return onError, err
	}
	if report.reason == v1beta1.ReasonPowerNotSupported {
		p.machine.Status.Power = nil
		p.endDrain()
	}
	p.reportPower(report)
	return next, nil
}

func (p *pass) powerReport(ctx context.Context) (powerReport, error) {
	m := p.machine
	stop := m.Spec.PowerState == v1beta1.PowerStopped
	state := m.Status.Instance.State
	reached := m.Status.Power == nil && !stop && state != v1beta1.InstanceStopped
	switch refused := p.powerRefusal(); {
	case reached:
		return powerReport{true, v1beta1.ReasonRunning, ""}, nil
	case refused != "":
		return powerReport{false, v1beta1.ReasonPowerNotSupported, refused}, nil
	case m.Status.Power == nil && isUpdating(p.original):
		return powerReport{false, v1beta1.ReasonUpdating, "Waiting for the end of the update of the instance."}, nil
	case !stop:
		return p.startInstance(ctx)
	case m.Status.Power == nil && state != v1beta1.InstanceStopped && !p.hasRun() && m.Status.FailureReason == "":
		return powerReport{false, v1beta1.ReasonWaitingForNode, "The instance is stopped after the machine has become Running."}, nil
	}
	return p.stopInstance(ctx, false)
}

// powerRefusal returns why the provider cannot stop and start the instance, or "" if this is unknown. An answer for one
// instance is valid until the spec changes.
func (p *pass) powerRefusal() string {
	if p.Power == nil {
		return fmt.Sprintf("Provider %s cannot stop and start instances. Remove spec.powerState.", p.Cloud.Name())
	}
	c := meta.FindStatusCondition(p.original.Status.Conditions, v1beta1.ConditionPowerStateReached)
	if c != nil && c.Reason == v1beta1.ReasonPowerNotSupported && c.ObservedGeneration == p.machine.Generation {
		return c.Message
	}
	return ""
}

func (p *pass) reportPower(report powerReport) {
	old := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionPowerStateReached)
	if !p.setCondition(v1beta1.ConditionPowerStateReached, report.reached, report.reason, report.message) {
		return
	}
	switch message := fmt.Sprintf("spec.powerState is %s: %s", p.machine.Spec.PowerState, report.message); report.reason {
	case v1beta1.ReasonStopped:
		p.note(report.reason, "Stop", report.message)
	case v1beta1.ReasonRunning:
		if old != nil {
			p.note(report.reason, "Start", "The instance runs again.")
		}
	case v1beta1.ReasonDraining, v1beta1.ReasonShuttingDown, v1beta1.ReasonStarting, v1beta1.ReasonUpdating,
		v1beta1.ReasonWaitingForNode:
	default:
		p.warn(report.reason, "SetPower", message)
	}
}

// endPower ends all work on the power state, because spec.powerState is not set. The instance keeps its state.
func (p *pass) endPower() {
	if p.machine.Status.Power == nil && !p.managedPower() {
		return
	}
	p.machine.Status.Power = nil
	p.endDrain()
	dropCondition(&p.machine.Status.Conditions, v1beta1.ConditionPowerStateReached)
}

func (p *pass) managedPower() bool {
	return meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionPowerStateReached) != nil
}

// updateWaitsForPower reports whether an update of the instance must wait, because Machinist stops or starts the
// instance. An update that is in progress ends first.
func (p *pass) updateWaitsForPower() bool {
	m := p.machine
	if !machinestate.IsStopped(m) && !machinestate.IsRebooting(m) || p.Power == nil ||
		m.Status.Power == nil && isUpdating(p.original) {
		return false
	}
	switch {
	case m.Status.Applied == nil:
	case isSpecUnchanged(m) && !updateRequested(m):
		p.setCondition(v1beta1.ConditionUpToDate, true, v1beta1.ReasonUpToDate, "")
	default:
		p.setCondition(v1beta1.ConditionUpToDate, false, v1beta1.ReasonUpdatePending,
			"The specification has changed, but the instance is stopped or being rebooted. The instance is updated when it "+
				"runs again.")
	}
	return true
}

// powerBlocker returns the condition Ready of a machine whose instance is being stopped, is stopped or is being
// started.
func powerBlocker(m *v1beta1.Machine) *metav1.Condition {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionPowerStateReached)
	switch {
	case c == nil || c.Reason == v1beta1.ReasonRunning || c.Reason == v1beta1.ReasonPowerNotSupported:
		return nil
	case m.Status.Power != nil || meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDrained) != nil ||
		c.Reason == v1beta1.ReasonDraining:
		return c
	}
	return nil
}
