package machine

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/pkg/provider"
)

// update is a change of the instance that the spec requires.
type update struct {
	inputs resolve.Inputs
	// wantedConfig is the configuration that the instance has after the update.
	wantedConfig *v1beta1.AppliedStatus
	// fingerprint is the hash of the inputs.
	fingerprint string
	// nodeDrained is true if the node was drained for this update in this pass.
	nodeDrained bool
}

// plannedUpdate returns the update that the instance needs now, or nil if it needs none.
func (p *pass) plannedUpdate(ctx context.Context) (*update, error) {
	m := p.machine
	if m.Status.Applied == nil {
		return nil, p.restoreApplied(ctx)
	}
	if why := p.unsupportedSchema(m); why != "" {
		p.setCondition(v1beta1.ConditionUpToDate, false, v1beta1.ReasonUnknownTypeVersion, why)
		return nil, nil
	}
	if isSpecUnchanged(p.machine) && !updateRequested(p.machine) {
		p.recordUpToDate()
		return nil, nil
	}
	if machinestate.IsPaused(m) {
		p.setCondition(v1beta1.ConditionUpToDate, false, v1beta1.ReasonUpdatePending,
			"The specification has changed, but the machine is paused. The instance is updated when the pause ends.")
		return nil, nil
	}
	inputs, err := p.Classes.Resolve(ctx, m)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		p.suspendDrain()
		p.reportNotUpdated(v1beta1.ReasonUpdateError, missing.Message)
		p.onMissing(missing)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("resolve the class of the update: %w", err)
	}
	wanted := appliedOf(m, inputs)
	if *m.Status.Applied == *wanted && !updateRequested(p.machine) {
		// Only the name of the class has changed.
		p.recordUpToDate()
		return nil, nil
	}
	if inputs.Provider != p.Cloud.Name() {
		p.endDrain()
		p.reportNotUpdated(v1beta1.ReasonUnsupportedChange,
			fmt.Sprintf("The instance belongs to provider %q and cannot be moved to provider %q.", p.Cloud.Name(), inputs.Provider))
		return nil, nil
	}
	fingerprint := "update " + fingerprintOf(m, inputs, attemptOf(p.machine))
	switch left, never := p.states.get(m).pace.waitTime(fingerprint, p.now); {
	case never:
		return nil, nil // The provider refused the update permanently, and nothing has changed.
	case left > 0:
		p.requeueIn(left)
		return nil, nil
	}
	return &update{inputs: inputs, wantedConfig: wanted, fingerprint: fingerprint}, nil
}

// restoreApplied handles a Machine whose status.applied is missing, because an older version or another client wrote
// the status. If the instance had the configuration of the current spec, restoreApplied records this configuration
// again. Otherwise, the configuration of the instance is unknown.
func (p *pass) restoreApplied(ctx context.Context) error {
	m := p.machine
	upToDate := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate)
	if upToDate == nil {
		return nil
	}
	if upToDate.Status != metav1.ConditionTrue || upToDate.ObservedGeneration != m.Generation {
		p.reportNotUpdated(v1beta1.ReasonUpdateError, fmt.Sprintf("status.applied is missing, so the configuration of the "+
			"instance is unknown. Replace the machine: set the annotation %s.", v1beta1.AnnotationReplace))
		return nil
	}
	inputs, err := p.Classes.Resolve(ctx, m)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		p.onMissing(missing)
		return nil
	}
	if err != nil {
		return fmt.Errorf("resolve the class of the recorded configuration: %w", err)
	}
	m.Status.Applied = appliedOf(m, inputs)
	return nil
}

// isSpecUnchanged reports whether the spec still equals the recorded one. The class is not read, because a class
// never changes.
func isSpecUnchanged(m *v1beta1.Machine) bool {
	applied, spec := m.Status.Applied, m.Spec
	if applied.Version != spec.Version {
		return false
	}
	if spec.ClassRef != nil {
		return applied.ClassName == spec.ClassRef.Name
	}
	return applied.ClassName == "" && spec.ProviderSpec != nil &&
		applied.ProviderSpecHash == resolve.Inputs{ProviderSpec: spec.ProviderSpec.Raw}.SpecHash()
}

func (p *pass) recordUpToDate() {
	p.setCondition(v1beta1.ConditionUpToDate, true, v1beta1.ReasonUpToDate, "")
	p.endDrain()
}

func appliedOf(m *v1beta1.Machine, inputs resolve.Inputs) *v1beta1.AppliedStatus {
	return &v1beta1.AppliedStatus{ClassName: inputs.ClassName, ProviderSpecHash: inputs.SpecHash(),
		Version: m.Spec.Version}
}

// updateInPlace calls Update. If the update needs further steps, updateInPlace returns the driver's outcome.
// Otherwise, updateInPlace returns "".
func (p *pass) updateInPlace(ctx context.Context, r *removal, u *update) (provider.UpdateOutcome, error) {
	m := p.machine
	node, err := p.pairedNode(ctx)
	if err != nil {
		return "", err
	}
	if waitsForAgent(m, node) {
		return provider.UpdateByAgent, nil
	}
	req := provider.UpdateRequest{
		Machine: identity(m), Class: u.inputs.Class(), ClusterID: p.ClusterID, ProviderID: m.Spec.ProviderID,
		CreateHandle: m.CreateHandle(), Version: m.Spec.Version,
		NodeDrained: u.nodeDrained || p.drainedForUpdate(node),
	}
	if m.Status.Instance != nil {
		req.Scope = m.Status.Instance.Scope
	}
	if node != nil {
		req.NodeVersion = node.Status.NodeInfo.KubeletVersion
	}
	if err := p.recordRequest(ctx); err != nil {
		return "", err
	}
	m = p.machine
	result, err := p.Cloud.Update(p.trace.traceUpdate(ctx), req)
	if err != nil {
		p.noteAmbiguous(err, u.fingerprint)
		if provider.IsNotFound(err) {
			if p.showsWithin() > 0 || p.createsWithin() > 0 {
				p.reportUpdating("Waiting for the provider to show the instance.")
				return "", nil
			}
			p.states.update(m, func(r *machineState) { r.instance.suspectID = m.Spec.ProviderID })
		}
		p.recordUpdateFailure(err, u.fingerprint)
		return "", nil
	}
	p.callSucceeded()
	switch result.Outcome {
	case provider.UpdateDone:
		if same, err := p.versionUnchanged(ctx, node); err != nil || !same {
			return "", err
		}
		if result.Instance != nil && result.Instance.State == provider.StateStopped {
			p.reportUpdating("The provider reports that the update is done, but the instance is stopped. Start the instance in the cloud.")
			return "", nil
		}
		// The cloud does not know whether an agent has received a request for another update, which the agent may still
		// execute.
		if hasRequest(node) && m.Spec.Version != "" {
			return provider.UpdateByAgent, nil
		}
		if done, err := p.withdrawRequest(ctx, r, node); err != nil || !done {
			return "", err
		}
		if left := p.settlesIn(u.fingerprint); left > 0 {
			p.reportNotUpdated(v1beta1.ReasonUpdating, "The update is done. Updating the instance once more after the settle time, because an earlier request may still change it.")
			p.requeueIn(left)
			return "", nil
		}
		p.states.update(m, func(r *machineState) { r.pace, r.update = pace{}, updateState{} })
		m.Status.Applied = u.wantedConfig
		p.phaseEnded(phaseUpdate, updateBegan(p.machine, p.now))
		if result.Instance != nil && m.Status.Instance != nil {
			m.Status.Instance.Type, m.Status.Instance.State = result.Instance.Type, v1beta1.InstanceState(result.Instance.State)
		}
		p.recordUpToDate()
		p.operation(v1beta1.OperationUpdate, v1beta1.OperationSucceeded, "The instance was updated in place.", "")
		p.note(reasonUpdated, "Update", "The instance was updated in place.")
		return "", nil
	case provider.UpdateInProgress:
		p.reportUpdating("The provider is updating the instance.")
		return "", nil
	case provider.UpdateNeedsDrain:
		if u.nodeDrained {
			p.recordUpdateFailure(provider.Errorf(provider.Internal,
				"the driver requested a drain, but the node is already drained"), u.fingerprint)
			return "", nil
		}
		return result.Outcome, nil
	case provider.UpdateNeedsReplacement:
		p.states.update(m, func(r *machineState) { r.pace = pace{} })
		m.Status.Phase = v1beta1.MachineUpdating
		m.Status.Launch = &v1beta1.LaunchStatus{Attempt: m.LaunchAttempt(), Step: v1beta1.LaunchStepReplacing,
			OldProviderID: m.Spec.ProviderID, CreateHandle: m.CreateHandle()}
		p.updateWaits(v1beta1.ReasonReplacing, "Replacing the instance: "+result.Reason)
		p.note(v1beta1.ReasonReplacing, "Update", "Replacing the instance: "+result.Reason)
		// The step must be written to the status before anything is deleted.
		if err := p.writeStatus(ctx); err != nil {
			return "", err
		}
		p.trace.needsReplacement()
		return result.Outcome, nil
	case provider.UpdateByAgent:
		return result.Outcome, nil
	case provider.UpdateRefused:
		if done, err := p.withdrawRequest(ctx, r, node); err != nil || !done {
			return "", err
		}
		p.refuseUpdate(result.Reason, u.fingerprint)
		return "", nil
	}
	p.recordUpdateFailure(provider.Errorf(provider.Internal, "the driver returned the unknown outcome %q", result.Outcome), u.fingerprint)
	return "", nil
}

// refuseUpdate reports that the update is not possible. The update is not repeated until the spec or another input
// changes.
func (p *pass) refuseUpdate(reason, fingerprint string) {
	p.states.update(p.machine, func(r *machineState) { *r = machineState{pace: pace{triedInputs: fingerprint}} })
	p.endDrain()
	p.reportNotUpdated(v1beta1.ReasonUnsupportedChange, reason)
	p.operation(v1beta1.OperationUpdate, v1beta1.OperationFailed, reason, "")
}

func (p *pass) reportUpdating(message string) {
	p.operation(v1beta1.OperationUpdate, v1beta1.OperationProcessing, message, "")
	started := p.operationBegan()
	reason := v1beta1.ReasonUpdating
	if timeout := p.machine.Spec.Timeouts.UpdateOrDefault(); p.now.Sub(started) >= timeout {
		reason = v1beta1.ReasonUpdateTimeout
		message = fmt.Sprintf("The update has taken longer than %s.", timeout)
	} else {
		p.requeueIn(started.Add(timeout).Sub(p.now))
	}
	p.reportNotUpdated(reason, message)
	p.requeueIn(pollInterval(p.now.Sub(started)))
}

// reportNotUpdated reports why the instance does not match the spec. The instance continues to run unchanged.
func (p *pass) reportNotUpdated(reason, message string) {
	if p.setCondition(v1beta1.ConditionUpToDate, false, reason, message) && reason != v1beta1.ReasonUpdating {
		p.warn(reason, "Update", message)
	}
}

func (p *pass) recordUpdateFailure(err error, fingerprint string) {
	p.reportNotUpdated(v1beta1.ReasonUpdateError, messageOf(err))
	p.operationFailed(v1beta1.OperationUpdate, createRetryPolicy(provider.CodeOf(err)), err, fingerprint)
}

// drainedForUpdate reports whether the node is ready for a disruptive update: the node was drained, it is still
// cordoned, and its volumes are detached or cannot be. A machine without a node needs only the first.
func (p *pass) drainedForUpdate(node *corev1.Node) bool {
	if node == nil || !p.isTrue(v1beta1.ConditionDrained) {
		return p.isTrue(v1beta1.ConditionDrained)
	}
	volumes := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionVolumesDetached)
	return node.Spec.Unschedulable && volumes != nil &&
		(volumes.Status == metav1.ConditionTrue || volumes.Reason == v1beta1.ReasonSkipped)
}

// updateWaits reports what an update waits for that drains the node or replaces the instance.
func (p *pass) updateWaits(reason, message string) {
	if p.machine.Retrying() {
		p.removalWaits(reason, message)
		return
	}
	kind := v1beta1.ReasonUpdating
	if p.machine.IsReplacing() {
		kind = v1beta1.ReasonReplacing
	}
	p.setCondition(v1beta1.ConditionUpToDate, false, kind, message)
	p.waitsFor = &metav1.Condition{Reason: reason, Message: message}
}

func isUpdating(m *v1beta1.Machine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate)
	if c == nil || c.Status == metav1.ConditionTrue {
		return false
	}
	switch c.Reason {
	case v1beta1.ReasonUpdating, v1beta1.ReasonReplacing, v1beta1.ReasonUpdateTimeout, v1beta1.ReasonWaitingForAgent:
		return true
	}
	return false
}

// openNextInstance prepares the status for the new instance after the old one is gone, and writes it.
func (p *pass) openNextInstance(ctx context.Context) error {
	m := p.machine
	old := m.DeepCopy()
	p.node = nil
	p.endDrain()
	p.states.machines.Forget(client.ObjectKeyFromObject(m))
	dropCondition(&m.Status.Conditions, v1beta1.ConditionNodeHealthy)
	for _, kind := range []string{v1beta1.ConditionLaunched, v1beta1.ConditionRegistered} {
		p.setCondition(kind, false, v1beta1.ReasonReplacing, "The old instance is gone. Creating a new one.")
	}
	// The cloud may still show the old instance for some time, and the driver could mistake it for the new one.
	m.Status.Launch = &v1beta1.LaunchStatus{Attempt: m.NextLaunchAttempt(), OldProviderID: m.Status.Launch.OldProviderID}
	m.Status.Phase, m.Status.FailureReason, m.Status.FailureMessage = v1beta1.MachineUpdating, "", ""
	forgetNotice(m)
	m.Status.NodeRef, m.Status.NodeTemplate, m.Status.Applied, m.Status.Power = nil, nil, nil, nil
	m.Status.Instance, m.Status.Addresses, m.Status.Version = nil, nil, ""
	p.operation(v1beta1.OperationCreate, v1beta1.OperationProcessing, "The old instance is gone. Creating a new one.", "")
	if err := p.writeStatus(ctx); err != nil {
		return err
	}
	p.trace.oldInstanceGone(old)
	return nil
}
