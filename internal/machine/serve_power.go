package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/pkg/provider"
)

// A stop of an instance consists of the drain of its Node, the step ShuttingDown and the step Stopped. A start consists
// of the steps Starting and Booting. Each step is written to status.power before the first request to the cloud, and
// all requests can be repeated. A process that becomes the leader therefore continues with the step in the status.
//
// A shutdown that was requested is always completed before a start. Otherwise, a request that takes effect late would
// stop an instance that is in use again.

// powerReport is what the condition PowerStateReached reports about a stop or a start.
type powerReport struct {
	reached         bool
	reason, message string
}

// stopInstance drains the Node and stops the instance, and then keeps the instance stopped. If keepCapacity is true,
// the provider keeps what the next start needs.
func (p *pass) stopInstance(ctx context.Context, keepCapacity bool) (powerReport, error) {
	switch power := p.machine.Status.Power; {
	case power != nil && power.Step == v1beta1.PowerStepShuttingDown:
	case power != nil && power.Step == v1beta1.PowerStepStopped &&
		p.machine.Status.Instance.State != v1beta1.InstanceRunning:
		return stopped, nil
	default:
		report, err := p.drainForStop(ctx)
		if err != nil || report.reason != "" {
			return report, err
		}
		bootID := ""
		if p.node != nil {
			bootID = p.node.Status.NodeInfo.BootID
		}
		if err := p.beginPowerStep(ctx, v1beta1.PowerStepShuttingDown, bootID); err != nil {
			return powerReport{}, err
		}
	}
	return p.shutDown(ctx, keepCapacity)
}

var stopped = powerReport{true, v1beta1.ReasonStopped, "Machinist has stopped the instance."}

// startInstance starts the instance. The step Booting ends when the Node is Ready (endBoot).
func (p *pass) startInstance(ctx context.Context) (powerReport, error) {
	m := p.machine
	power := m.Status.Power
	if power != nil && power.Step == v1beta1.PowerStepShuttingDown {
		if report, err := p.shutDown(ctx, true); err != nil || !report.reached {
			return report, err
		}
		power = m.Status.Power
	}
	off := m.Status.Instance.State == v1beta1.InstanceStopped
	switch {
	case power == nil && !off, power != nil && power.Step == v1beta1.PowerStepBooting && !off:
		return powerReport{true, v1beta1.ReasonRunning, ""}, nil
	case power == nil, power.Step != v1beta1.PowerStepStarting:
		bootID := ""
		if power != nil {
			bootID = power.BootID
		}
		if err := p.beginPowerStep(ctx, v1beta1.PowerStepStarting, bootID); err != nil {
			return powerReport{}, err
		}
	}
	instance, report, err := p.setPower(ctx, provider.PowerOn, false)
	switch {
	case err != nil || report.reason != "":
		return report, err
	case instance.State != provider.StateRunning:
		p.requeueIn(pollInterval(p.now.Sub(p.machine.Status.Power.Since.Time)))
		return powerReport{false, v1beta1.ReasonStarting, "The provider is starting the instance."}, nil
	}
	m = p.machine
	m.Status.Addresses = instance.AllAddresses()
	m.Status.Power = &v1beta1.PowerStatus{Step: v1beta1.PowerStepBooting, Since: metav1.NewTime(p.Clock.Now()),
		BootID: m.Status.Power.BootID}
	if p.Target == nil {
		m.Status.Power = nil
	}
	p.endDrain()
	return powerReport{true, v1beta1.ReasonRunning, ""}, nil
}

// drainForStop drains the Node before the instance is stopped. When the drain is over, the report is empty.
func (p *pass) drainForStop(ctx context.Context) (powerReport, error) {
	r := &removal{pass: p, stopping: &powerReport{}}
	proceed, err := inOrder(ctx, r.findNode, r.drainNode)
	switch {
	case err != nil || proceed == next:
		return powerReport{}, err
	case r.stopping.reason == "":
		return powerReport{false, v1beta1.ReasonDraining, "Waiting for the drain of the node."}, nil
	}
	return *r.stopping, nil
}

// shutDown stops an instance whose Node is drained.
func (p *pass) shutDown(ctx context.Context, keepCapacity bool) (powerReport, error) {
	action, since := provider.PowerOff, p.machine.Status.Power.Since.Time
	message := fmt.Sprintf("The instance is shutting down. If it still runs after %s, it is stopped without waiting for "+
		"its operating system.", v1beta1.ShutdownTimeout)
	left := since.Add(v1beta1.ShutdownTimeout).Sub(p.now)
	switch reboot := p.machine.Status.Reboot; {
	case machinestate.IsRebooting(p.machine) && reboot.Unresponsive:
		action, left = provider.PowerForceOff, 0
		message = "The kubelet does not report. The instance is stopped without waiting for its operating system."
	case left <= 0:
		action = provider.PowerForceOff
		message = fmt.Sprintf("The instance did not shut down within %s. It is stopped without waiting for its operating "+
			"system.", v1beta1.ShutdownTimeout)
	}
	instance, report, err := p.setPower(ctx, action, keepCapacity)
	if left > 0 {
		p.requeueIn(left)
	}
	switch {
	case err != nil || report.reason != "":
		return report, err
	case instance.State != provider.StateStopped:
		p.requeueIn(pollInterval(p.now.Sub(since)))
		return powerReport{false, v1beta1.ReasonShuttingDown, message}, nil
	}
	p.machine.Status.Power = &v1beta1.PowerStatus{Step: v1beta1.PowerStepStopped, Since: metav1.NewTime(p.Clock.Now()),
		BootID: p.machine.Status.Power.BootID}
	return stopped, nil
}

// beginPowerStep writes a step to the status.
func (p *pass) beginPowerStep(ctx context.Context, step v1beta1.PowerStep, bootID string) error {
	p.machine.Status.Power = &v1beta1.PowerStatus{Step: step, Since: metav1.NewTime(p.Clock.Now()), BootID: bootID}
	p.states.update(p.machine, func(m *machineState) { m.pace = pace{} })
	reason, message := v1beta1.ReasonStarting, "The provider is asked to start the instance."
	if step == v1beta1.PowerStepShuttingDown {
		reason, message = v1beta1.ReasonShuttingDown, "The provider is asked to stop the instance."
	}
	kind := v1beta1.ConditionPowerStateReached
	if machinestate.IsRebooting(p.machine) {
		kind = v1beta1.ConditionRebooted
	}
	p.setCondition(kind, false, reason, message)
	p.summarize()
	if err := p.writeStatus(ctx); err != nil {
		return err
	}
	if written := p.original.Status.Power; written == nil || written.Step != step {
		return errStale // The Machine is gone, so the step was not written.
	}
	return nil
}

// setPower asks the provider to stop or to start the instance. If the request was not sent or failed, the report says
// why.
func (p *pass) setPower(ctx context.Context, action provider.PowerAction,
	keepCapacity bool) (*provider.Instance, powerReport, error) {
	m, fingerprint := p.machine, "power "+string(action)
	if left, _ := p.states.get(m).pace.waitTime(fingerprint, p.now); left > 0 {
		p.requeueIn(left)
		last := p.states.get(m).pace
		return nil, powerReport{false, last.reason, last.message}, nil
	}
	inputs, err := p.Classes.ResolveForDeletion(ctx, m)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		p.requeueIn(secretBackstop)
		return nil, powerReport{false, missing.Reason, missing.Message}, nil
	}
	if err != nil {
		return nil, powerReport{}, fmt.Errorf("resolve the machine's class: %w", err)
	}
	if err := p.confirm(ctx, "changing the power state of its instance"); err != nil {
		return nil, powerReport{}, err
	}
	instance, err := p.Power.SetPower(ctx, provider.PowerRequest{Machine: identity(m), Class: inputs.Class(),
		ClusterID: p.ClusterID, ProviderID: m.Spec.ProviderID, Scope: scopeOf(m), Action: action,
		KeepCapacity: keepCapacity})
	if err != nil {
		return nil, p.powerFailed(err, fingerprint), nil
	}
	p.callSucceeded()
	p.states.update(m, func(s *machineState) { s.pace, s.instance.isConfirmed = pace{}, false })
	p.noteShown()
	m.Status.Instance.State = v1beta1.InstanceState(instance.State)
	return instance, powerReport{}, nil
}

func (p *pass) powerFailed(err error, fingerprint string) powerReport {
	code := provider.CodeOf(err)
	if code == provider.Unimplemented {
		return powerReport{false, v1beta1.ReasonPowerNotSupported, messageOf(err)}
	}
	if code == provider.NotFound {
		p.states.update(p.machine, func(s *machineState) { s.instance.suspectID = p.machine.Spec.ProviderID })
	}
	c, failures := powerRetryPolicy(code), int32(1)
	if before := p.states.get(p.machine).pace; before.triedInputs == fingerprint {
		failures = increment(before.failures)
	}
	now, delay := p.Clock.Now(), c.backoff(failures, provider.RetryAfter(err), string(p.machine.UID))
	p.states.update(p.machine, func(s *machineState) {
		s.pace = pace{triedInputs: fingerprint, notBefore: now.Add(delay), failures: failures, reason: c.reason,
			message: messageOf(err)}
	})
	if waitsForCloud(code) {
		p.recovery.addWaiting(client.ObjectKeyFromObject(p.machine), now, now.Add(provider.RetryAfter(err)))
	}
	p.requeueIn(delay)
	return powerReport{false, c.reason, messageOf(err)}
}

func powerRetryPolicy(code provider.Code) retryPolicy {
	c := deleteRetryPolicy(code)
	switch {
	case code == provider.ResourceExhausted:
		return retryPolicy{v1beta1.ReasonInsufficientResources, time.Minute, 10 * time.Minute}
	case c.reason == v1beta1.ReasonDeleteError:
		c.reason = v1beta1.ReasonPowerError
	}
	return c
}

// bootedAgain reports whether the Node has reported since its instance was started again. The condition Ready of a Node
// may be True for some time after the kubelet has stopped.
func (p *pass) bootedAgain() bool {
	power := p.machine.Status.Power
	return power == nil || power.BootID == "" || p.node.Status.NodeInfo.BootID != power.BootID
}

// endBoot ends a start, because the Node is Ready again.
func (p *pass) endBoot() {
	if power := p.machine.Status.Power; power != nil && power.Step == v1beta1.PowerStepBooting {
		p.machine.Status.Power = nil
	}
}

// observeStopped observes the Node of an instance that Machinist stops or starts.
func (p *pass) observeStopped(ctx context.Context, ready *corev1.NodeCondition) (progress, error) {
	power := p.machine.Status.Power
	if power.Step == v1beta1.PowerStepShuttingDown {
		return next, nil
	}
	p.setCondition(v1beta1.ConditionNodeHealthy, false, v1beta1.ReasonStopped, stopped.message)
	if power.Step != v1beta1.PowerStepStopped || ready == nil || ready.Status != corev1.ConditionTrue ||
		power.BootID == "" || !p.bootedAgain() {
		return next, nil
	}
	// Another client has started the instance.
	_, err := p.confirmInstance(ctx, true)
	if p.machine.Status.Instance.State == v1beta1.InstanceRunning {
		p.requeueIn(time.Millisecond)
	}
	return next, err
}
