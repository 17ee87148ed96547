package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/drain"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/machine/preservation"
)

// A reboot consists of the drain of the Node, and of the steps of a stop and a start (serve_power.go). status.reboot
// records the request together with the first step, before the first request to the cloud. A value of the annotation
// therefore never causes two reboots, and a process that becomes the leader continues with the step in the status.

// rebootAction is what a pass does about a reboot.
type rebootAction int

const (
	// rebootNothing means that there is no reboot.
	rebootNothing rebootAction = iota
	// rebootWaits means that the requested reboot must not begin yet. A drain for the reboot ends.
	rebootWaits
	// rebootBegins means that the Node is drained, and then the instance is stopped.
	rebootBegins
	// rebootContinues means that the instance is stopped or started.
	rebootContinues
	// rebootEnds means that the reboot ends with the state in the plan.
	rebootEnds
)

// rebootPlan is a decision about a reboot.
type rebootPlan struct {
	action rebootAction
	// request is the value of the annotation if the reboot begins, and if the provider refuses it.
	request string
	// state is the state in which the reboot ends.
	state           v1beta1.RebootState
	reason, message string
	// checkIn is the time until the decision may change without an event. Zero means never.
	checkIn time.Duration
}

// rebootLimits is what planReboot knows in addition to the Machine.
type rebootLimits struct {
	// refusal is why the provider cannot reboot any instance, or "".
	refusal string
	// hasRun is true if the machine has become Running.
	hasRun bool
	// updating is true while the instance is being updated or replaced.
	updating bool
}

// planReboot decides about the reboot of a machine that is not being deleted, paused or interrupted.
func planReboot(m *v1beta1.Machine, limits rebootLimits, now time.Time) rebootPlan {
	last := m.Status.Reboot
	request, requested := machinestate.RebootRequest(m)
	requested = requested && (last == nil || last.State == v1beta1.RebootDraining || last.Request != request)
	if last != nil && last.State == v1beta1.RebootRebooting {
		power := m.Status.Power
		switch {
		case m.Status.FailureReason != "":
			return endReboot(v1beta1.RebootCancelled, "The machine failed during the reboot.")
		case m.Spec.PowerState == v1beta1.PowerStopped:
			return endReboot(v1beta1.RebootCancelled, "spec.powerState became Stopped during the reboot.")
		case power == nil:
			return endReboot(v1beta1.RebootCancelled, "Another client removed status.power during the reboot.")
		case power.Step != v1beta1.PowerStepBooting:
			return rebootPlan{action: rebootContinues}
		case !requested:
			left := power.Since.Add(m.Spec.Timeouts.CreationOrDefault()).Sub(now)
			if left <= 0 {
				return endReboot(v1beta1.RebootFailed, fmt.Sprintf("The instance was started, but its Node did not become "+
					"Ready within %s.", m.Spec.Timeouts.CreationOrDefault()))
			}
			return rebootPlan{action: rebootContinues, checkIn: left}
		}
	}
	wait := func(reason, message string) rebootPlan {
		return rebootPlan{action: rebootWaits, reason: reason, message: message}
	}
	switch {
	case !requested:
		return rebootPlan{}
	case limits.refusal != "":
		return rebootPlan{action: rebootEnds, request: request, state: v1beta1.RebootNotSupported,
			reason: v1beta1.ReasonPowerNotSupported, message: limits.refusal}
	case preservation.IsPreserved(m):
		return wait(v1beta1.ReasonPreserved, "The machine is preserved. The instance is rebooted when this ends.")
	case m.Spec.PowerState == v1beta1.PowerStopped:
		return wait(v1beta1.ReasonStopped, "spec.powerState is Stopped. The instance is rebooted when it runs again.")
	case m.Status.Power != nil && (last == nil || last.State != v1beta1.RebootRebooting):
		return wait(v1beta1.ReasonStarting, "The instance is being started. It is rebooted when its Node is Ready.")
	case limits.updating:
		return wait(v1beta1.ReasonUpdating, "Waiting for the end of the update of the instance.")
	case !limits.hasRun:
		return wait(v1beta1.ReasonWaitingForNode, "The instance is rebooted after the machine has become Running.")
	}
	return rebootPlan{action: rebootBegins, request: request}
}

func endReboot(state v1beta1.RebootState, message string) rebootPlan {
	reason := v1beta1.ReasonRebootCancelled
	if state == v1beta1.RebootFailed {
		reason = v1beta1.ReasonRebootFailed
	}
	return rebootPlan{action: rebootEnds, state: state, reason: reason, message: message}
}

// rebootOnRequest reboots the instance once for each value of the annotation machinist.dev/reboot. The instance of a
// paused or interrupted Machine is not changed.
func (p *pass) rebootOnRequest(ctx context.Context) (progress, error) {
	m := p.machine
	switch {
	case machinestate.IsPaused(m) || p.unsupportedSchema(m) != "":
		if machinestate.IsRebooting(m) {
			p.suspendDrain()
		}
		return next, nil
	case machinestate.IsInterrupted(m) || p.outage():
		return next, nil
	}
	refusal := ""
	if p.Power == nil {
		refusal = fmt.Sprintf("Provider %s cannot stop and start instances.", p.Cloud.Name())
	}
	plan := planReboot(m, rebootLimits{refusal: refusal, hasRun: p.hasRun(),
		updating: isUpdating(p.original) || isUpdating(m)}, p.now)
	if plan.checkIn > 0 {
		p.requeueIn(plan.checkIn)
	}
	report, err := powerReport{false, plan.reason, plan.message}, error(nil)
	switch plan.action {
	case rebootNothing:
		p.withdrawReboot()
		if _, kept := m.Annotations[v1beta1.AnnotationReboot]; !kept {
			dropCondition(&m.Status.Conditions, v1beta1.ConditionRebooted)
		}
		return next, nil
	case rebootWaits:
		p.withdrawReboot()
	case rebootEnds:
		if plan.state == v1beta1.RebootFailed {
			booted, err := p.bootedLive(ctx)
			if err != nil {
				return onError, err
			}
			if booted {
				return next, nil // The reboot ends when the cached Node is Ready too.
			}
		}
		p.completeReboot(plan.request, plan.state)
	case rebootBegins:
		report, err = p.beginReboot(ctx, plan.request)
	case rebootContinues:
		report, err = p.continueReboot(ctx)
	}
	if err != nil {
		return onError, err
	}
	if report.reason == v1beta1.ReasonPowerNotSupported && machinestate.IsRebooting(m) {
		p.completeReboot("", v1beta1.RebootNotSupported)
	}
	p.reportReboot(report)
	return next, nil
}

// withdrawReboot ends the drain for a reboot that must not begin.
func (p *pass) withdrawReboot() {
	if last := p.machine.Status.Reboot; last == nil || last.State != v1beta1.RebootDraining {
		return
	}
	p.machine.Status.Reboot = nil
	p.endDrain()
	dropCondition(&p.machine.Status.Conditions, v1beta1.ConditionRebooted)
}

// completeReboot records the result of a reboot. The argument request is the value of the annotation if the reboot has
// not begun.
func (p *pass) completeReboot(request string, state v1beta1.RebootState) {
	m, now := p.machine, metav1.NewTime(p.Clock.Now())
	if m.Status.Reboot == nil || !machinestate.IsRebooting(m) {
		m.Status.Reboot = &v1beta1.RebootStatus{Request: request}
	}
	m.Status.Reboot.State, m.Status.Reboot.CompletionTime = state, &now
	if state == v1beta1.RebootSucceeded {
		return // The step Booting ends when the Node is Ready (endBoot).
	}
	if m.Spec.PowerState == v1beta1.PowerStopped {
		return // The stop continues with the same step.
	}
	m.Status.Power = nil
	p.endDrain()
}

// beginReboot drains the Node and begins to stop the instance. If the kubelet is silent, no pod can be evicted, so the
// Node is not drained.
func (p *pass) beginReboot(ctx context.Context, request string) (powerReport, error) {
	m := p.machine
	node, silent, err := p.silentNode(ctx)
	if err != nil {
		return powerReport{}, err
	}
	last := m.Status.Reboot
	if !silent {
		if last == nil || last.Request != request || last.State != v1beta1.RebootDraining {
			m.Status.Reboot = &v1beta1.RebootStatus{Request: request, State: v1beta1.RebootDraining,
				OutOfService: last != nil && last.OutOfService}
			m.Status.Power = nil // The boot after the former reboot did not end.
		}
		if report, err := p.drainForStop(ctx); err != nil || report.reason != "" {
			return report, err
		}
		node = p.node
	}
	now, bootID := metav1.NewTime(p.Clock.Now()), ""
	if node != nil {
		bootID = node.Status.NodeInfo.BootID
	}
	m.Status.Reboot = &v1beta1.RebootStatus{Request: request, State: v1beta1.RebootRebooting, StartTime: &now,
		Unresponsive: silent, OutOfService: last != nil && last.OutOfService}
	if silent {
		p.endDrain()
	}
	if err := p.beginPowerStep(ctx, v1beta1.PowerStepShuttingDown, bootID); err != nil {
		return powerReport{}, err
	}
	if m = p.machine; m.Status.Reboot == nil || m.Status.Reboot.State != v1beta1.RebootRebooting {
		// Without the record, the value of the annotation would cause another reboot.
		return powerReport{}, errors.New("the API server did not store status.reboot: update the CustomResourceDefinitions")
	}
	return p.continueReboot(ctx)
}

// silentNode returns the machine's Node, and whether its kubelet has stopped reporting. The cached Node may be
// outdated.
func (p *pass) silentNode(ctx context.Context) (node *corev1.Node, silent bool, err error) {
	if p.Target == nil || p.machine.Status.NodeRef == nil {
		return nil, false, nil
	}
	node, err = p.liveNode(ctx)
	return node, err == nil && (node == nil || !nodeReachable(node)), err
}

// liveNode reads the Node to which the status refers. The result is nil if the Node was deleted.
func (p *pass) liveNode(ctx context.Context) (*corev1.Node, error) {
	ref, node := p.machine.Status.NodeRef, &corev1.Node{}
	switch err := p.Target.LiveClient.Get(ctx, client.ObjectKey{Name: ref.Name}, node); {
	case apierrors.IsNotFound(err), err == nil && node.UID != ref.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read node %s before the reboot of its instance: %w", ref.Name, err)
	}
	return node, nil
}

// bootedLive reports whether the Node is Ready again after the reboot. The cached Node may be outdated.
func (p *pass) bootedLive(ctx context.Context) (bool, error) {
	node, err := p.liveNode(ctx)
	if err != nil || node == nil {
		return false, err
	}
	ready := readyCondition(node)
	return ready != nil && ready.Status == corev1.ConditionTrue &&
		node.Status.NodeInfo.BootID != p.machine.Status.Power.BootID, nil
}

// continueReboot stops the instance and starts it again.
func (p *pass) continueReboot(ctx context.Context) (powerReport, error) {
	if p.machine.Status.Power.Step == v1beta1.PowerStepShuttingDown {
		if report, err := p.shutDown(ctx, true); err != nil || !report.reached {
			return report, err
		}
	}
	if p.machine.Status.Power.Step == v1beta1.PowerStepStopped {
		if err := p.declareOutOfService(ctx); err != nil {
			return powerReport{}, err
		}
	}
	report, err := p.startInstance(ctx)
	m := p.machine // startInstance may have written the status.
	switch {
	case err != nil || !report.reached:
		return report, err
	case m.Status.Power == nil: // There is no Node.
		p.completeReboot("", v1beta1.RebootSucceeded)
		return rebooted, nil
	}
	p.requeueIn(m.Status.Power.Since.Add(m.Spec.Timeouts.CreationOrDefault()).Sub(p.now))
	return powerReport{false, v1beta1.ReasonBooting, "The instance was started again. Waiting until its Node is Ready."}, nil
}

var rebooted = powerReport{true, v1beta1.ReasonRebooted, "The instance was rebooted."}

// declareOutOfService sets the out-of-service taint on the Node of a stopped instance whose kubelet was silent. Its
// pods were not evicted. With the taint, Kubernetes starts them elsewhere, with the same volumes.
func (p *pass) declareOutOfService(ctx context.Context) error {
	last := p.machine.Status.Reboot
	if !last.Unresponsive || last.OutOfService || p.Target == nil || p.machine.Status.NodeRef == nil {
		return nil
	}
	node, err := p.liveNode(ctx)
	if err != nil || node == nil {
		return err
	}
	if _, err := drain.OutOfService(ctx, p.Target.Nodes, node, p.now); err != nil {
		return client.IgnoreNotFound(err)
	}
	last.OutOfService = true
	return nil
}

// endRebootWithNode removes the out-of-service taint and ends the reboot, because the Node is Ready again.
func (p *pass) endRebootWithNode(ctx context.Context) error {
	last := p.machine.Status.Reboot
	if last == nil {
		return nil
	}
	if last.OutOfService {
		if err := p.confirm(ctx, "removing the out-of-service taint"); err != nil {
			return err
		}
		node, err := drain.InService(ctx, p.Target.Nodes, p.node)
		if err != nil {
			return err
		}
		p.node, last.OutOfService = node, false
	}
	if power := p.machine.Status.Power; last.State == v1beta1.RebootRebooting && power != nil &&
		power.Step == v1beta1.PowerStepBooting {
		p.completeReboot("", v1beta1.RebootSucceeded)
		p.reportReboot(rebooted)
	}
	return nil
}

func (p *pass) reportReboot(report powerReport) {
	if !p.setCondition(v1beta1.ConditionRebooted, report.reached, report.reason, report.message) {
		return
	}
	switch report.reason {
	case v1beta1.ReasonRebooted:
		p.note(report.reason, "Reboot", report.message)
	case v1beta1.ReasonDraining, v1beta1.ReasonShuttingDown, v1beta1.ReasonStarting, v1beta1.ReasonBooting,
		v1beta1.ReasonUpdating, v1beta1.ReasonWaitingForNode, v1beta1.ReasonPreserved, v1beta1.ReasonStopped:
	default:
		p.warn(report.reason, "Reboot", "Reboot: "+report.message)
	}
}

// rebootBlocker returns the condition Ready of a machine whose instance is being rebooted.
func rebootBlocker(m *v1beta1.Machine) *metav1.Condition {
	if !machinestate.IsRebooting(m) {
		return nil
	}
	return meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRebooted)
}
