package machine

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/drain"
	"machinist.dev/machinist/internal/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

// update brings the instance to what the specification asks for: in place where the provider can, else by replacing it
// under the same Machine. Who changed the specification need not know which.
func (p *pass) update(ctx context.Context) (progress, error) {
	m := p.machine
	if paused(m) || unsupportedSchema(m) != "" {
		p.suspendDrain()
	}
	if m.Replacing() {
		if paused(m) {
			return wait, nil
		}
		return p.replace(ctx)
	}
	if m.Status.Applied == nil {
		return next, nil // Nothing to compare with: it was launched before this was recorded.
	}
	if why := unsupportedSchema(m); why != "" {
		p.setCondition(v1beta1.ConditionUpToDate, false, v1beta1.ReasonUnknownTypeVersion, why)
		return next, nil
	}
	if p.unchanged() && !p.askedForUpdate() {
		p.upToDate()
		return next, nil
	}
	if paused(m) {
		p.setCondition(v1beta1.ConditionUpToDate, false, v1beta1.ReasonUpdatePending,
			"The specification has changed; nothing is done about it now.")
		return next, nil
	}
	inputs, err := p.Classes.Resolve(ctx, m)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		p.suspendDrain()
		p.notUpdated(v1beta1.ReasonUpdateError, missing.Message)
		return next, nil
	}
	if err != nil {
		return wait, fmt.Errorf("resolve the class of the update: %w", err)
	}
	wanted := appliedOf(m, inputs)
	if *m.Status.Applied == *wanted && !p.askedForUpdate() {
		// Another name for the same.
		p.upToDate()
		return next, nil
	}
	if inputs.Provider != p.Cloud.Name() {
		p.endDrain()
		p.notUpdated(v1beta1.ReasonUnsupportedChange,
			fmt.Sprintf("The instance is of provider %q and cannot become one of %q.", p.Cloud.Name(), inputs.Provider))
		return next, nil
	}
	fingerprint := "update " + fingerprintOf(m, inputs, p.attempt())
	if r := p.states.get(m); r.launch.tried == fingerprint {
		if r.launch.notBefore.IsZero() {
			return next, nil // Refused for good, and nothing has changed.
		}
		if left := r.launch.notBefore.Sub(p.now); left > 0 {
			p.requeueIn(left)
			return next, nil
		}
	}
	return p.updateInstance(ctx, inputs, wanted, fingerprint, false)
}

// unchanged compares what can be compared without reading the class, which never changes.
func (p *pass) unchanged() bool {
	applied, spec := p.machine.Status.Applied, p.machine.Spec
	if applied.Version != spec.Version {
		return false
	}
	if spec.ClassRef != nil {
		return applied.ClassName == spec.ClassRef.Name
	}
	return applied.ClassName == "" && spec.ProviderSpec != nil &&
		applied.ProviderSpecHash == resolve.Resolved{ProviderSpec: spec.ProviderSpec.Raw}.SpecHash()
}

// askedForUpdate reports whether the provider was asked for a change without a known result. Then what is
// recorded as applied may not be what the instance is, and taking the change back is a change as well.
func (p *pass) askedForUpdate() bool {
	c := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionUpToDate)
	if c == nil || c.Status == metav1.ConditionTrue {
		return false
	}
	switch c.Reason {
	case v1beta1.ReasonUpdating, v1beta1.ReasonUpdateTimeout, v1beta1.ReasonWaitingForAgent:
		return true
	case v1beta1.ReasonUpdateError, v1beta1.ReasonUpdatePending:
		last := p.machine.Status.LastOperation
		return last != nil && last.Type == v1beta1.OperationUpdate &&
			(last.Code != "" || last.State == v1beta1.OperationProcessing)
	}
	return false
}

// upToDate says that the instance is what the specification asks for, so that nothing is drained for a change any more.
func (p *pass) upToDate() {
	p.setCondition(v1beta1.ConditionUpToDate, true, v1beta1.ReasonUpToDate, "")
	p.endDrain()
}

// appliedOf is what an instance made from the inputs was made from.
func appliedOf(m *v1beta1.Machine, inputs resolve.Resolved) *v1beta1.AppliedStatus {
	return &v1beta1.AppliedStatus{ClassName: inputs.ClassName, ProviderSpecHash: inputs.SpecHash(),
		Version: m.Spec.Version}
}

// updateInstance asks the driver for the change, after draining the node if it needs that.
func (p *pass) updateInstance(ctx context.Context, inputs resolve.Resolved, wanted *v1beta1.AppliedStatus,
	fingerprint string, drained bool) (progress, error) {
	m := p.machine
	node, err := p.pairedNode(ctx)
	if err != nil {
		return wait, err
	}
	if p.awaitsAgent(node) {
		return p.updateByAgent(ctx, wanted, fingerprint)
	}
	req := provider.UpdateRequest{
		Machine: identity(m), Class: inputs.Class(), ClusterID: p.ClusterID, ProviderID: m.Spec.ProviderID,
		Version: m.Spec.Version,
		Drained: drained || p.drainedForUpdate(),
	}
	if m.Status.Instance != nil {
		req.Scope = m.Status.Instance.Scope
	}
	if node != nil {
		req.NodeVersion = node.Status.NodeInfo.KubeletVersion
	}
	result, err := p.Cloud.Update(ctx, req)
	if err != nil {
		if provider.IsNotFound(err) {
			if p.showsWithin() > 0 {
				p.updating("Waiting for the provider to show the instance.")
				return next, nil
			}
			p.states.update(m, func(r *machineState) { r.instance.suspectID = m.Spec.ProviderID })
		}
		p.updateFailed(err, fingerprint)
		return next, nil
	}
	switch result.Outcome {
	case provider.UpdateDone:
		// Of what an agent was asked for, and may be about to do, the cloud knows nothing.
		if hasRequest(node) && m.Spec.Version != "" {
			return p.updateByAgent(ctx, wanted, fingerprint)
		}
		if done, err := p.withdrawRequest(ctx, node); err != nil || !done {
			return progress(err == nil), err
		}
		p.states.update(m, func(r *machineState) { r.launch.tried = "" })
		m.Status.Applied = wanted
		p.ended(phaseUpdate, p.updateBegan())
		if result.Instance != nil && m.Status.Instance != nil {
			m.Status.Instance.Type, m.Status.Instance.State = result.Instance.Type, v1beta1.InstanceState(result.Instance.State)
		}
		p.upToDate()
		p.operation(v1beta1.OperationUpdate, v1beta1.OperationSucceeded, "The instance was updated in place.", "")
		p.note("Updated", "Update", "The instance was updated in place.")
		return next, nil
	case provider.UpdateInProgress:
		p.updating("The provider is updating the instance.")
		return next, nil
	case provider.UpdateNeedsDrain:
		if drained {
			p.updateFailed(provider.Errorf(provider.Internal, "the driver asks for a drain again after it"), fingerprint)
			return next, nil
		}
		for _, step := range []func(context.Context) (progress, error){p.findNodeToDelete, p.drain} {
			proceed, err := step(ctx)
			if err != nil {
				return wait, err
			}
			if !bool(proceed) {
				return next, nil // Draining takes its time; the node is observed meanwhile.
			}
		}
		return p.updateInstance(ctx, inputs, wanted, fingerprint, true)
	case provider.UpdateNeedsReplacement:
		p.states.update(m, func(r *machineState) { r.launch.tried = "" })
		m.Status.Phase = v1beta1.MachineUpdating
		m.Status.Launch = &v1beta1.LaunchStatus{Attempt: m.LaunchAttempt(), Step: v1beta1.LaunchStepReplacing,
			OldProviderID: m.Spec.ProviderID}
		p.updateWaits(v1beta1.ReasonReplacing, "The instance is replaced: "+result.Reason)
		p.note("Replacing", "Update", "The instance is replaced: "+result.Reason)
		// The step is durable before anything is taken down.
		if err := p.writeStatus(ctx); err != nil {
			return wait, err
		}
		return p.replace(ctx)
	case provider.UpdateByAgent:
		return p.updateByAgent(ctx, wanted, fingerprint)
	case provider.UpdateRefused:
		if done, err := p.withdrawRequest(ctx, node); err != nil || !done {
			return progress(err == nil), err
		}
		p.refuseUpdate(result.Reason, fingerprint)
		return next, nil
	}
	p.updateFailed(provider.Errorf(provider.Internal, "the driver answered %q", result.Outcome), fingerprint)
	return next, nil
}

// refuseUpdate says that the change cannot be made. Nothing is tried again until something changes.
func (p *pass) refuseUpdate(reason, fingerprint string) {
	p.states.update(p.machine, func(r *machineState) { *r = machineState{launch: launchState{tried: fingerprint}} })
	p.endDrain()
	p.notUpdated(v1beta1.ReasonUnsupportedChange, reason)
	p.operation(v1beta1.OperationUpdate, v1beta1.OperationFailed, reason, "")
}

// updating says that a change in place is under way, and that it takes too long when it does.
func (p *pass) updating(message string) {
	p.operation(v1beta1.OperationUpdate, v1beta1.OperationProcessing, message, "")
	started := p.machine.Status.LastOperation.LastUpdateTime.Time
	reason := v1beta1.ReasonUpdating
	if timeout := p.machine.Spec.Timeouts.UpdateOrDefault(); p.now.Sub(started) >= timeout {
		reason = v1beta1.ReasonUpdateTimeout
		message = fmt.Sprintf("The update takes longer than %s.", timeout)
	} else {
		p.requeueIn(started.Add(timeout).Sub(p.now))
	}
	p.notUpdated(reason, message)
	p.requeueIn(pollInterval(p.now.Sub(started)))
}

// notUpdated says why the instance is not what the specification asks for. The old one keeps running.
func (p *pass) notUpdated(reason, message string) {
	if p.setCondition(v1beta1.ConditionUpToDate, false, reason, message) && reason != v1beta1.ReasonUpdating {
		p.warn(reason, "Update", message)
	}
}

// updateFailed records an error of Update and when the next try is due.
func (p *pass) updateFailed(err error, fingerprint string) {
	p.notUpdated(v1beta1.ReasonUpdateError, messageOf(err))
	p.operationFailed(v1beta1.OperationUpdate, createRetryPolicy(provider.CodeOf(err)), err, fingerprint)
}

// drainedForUpdate reports whether the node was drained for a change that is not done yet, and its volumes are no
// longer waited for.
func (p *pass) drainedForUpdate() bool {
	return p.isTrue(v1beta1.ConditionDrained) && p.isTrue(v1beta1.ConditionVolumesDetached)
}

// endDrain takes back what was done to the node for an update. The node is uncordoned when it is Ready again.
func (p *pass) endDrain() {
	dropCondition(&p.machine.Status.Conditions, v1beta1.ConditionDrained)
	dropCondition(&p.machine.Status.Conditions, v1beta1.ConditionDrainExtended)
	dropCondition(&p.machine.Status.Conditions, v1beta1.ConditionVolumesDetached)
	if p.Drainer != nil {
		p.Drainer.Forget(client.ObjectKeyFromObject(p.machine))
	}
}

// suspendDrain keeps the workers from evicting pods for an update that does not go on now. The node stays as it is, and
// the drain goes on as the same one.
func (p *pass) suspendDrain() {
	if p.Drainer != nil {
		p.Drainer.Forget(client.ObjectKeyFromObject(p.machine))
	}
}

// uncordon ends the disruption of an update once the node is Ready again. One that was drained for a change that is
// still to be made stays out of service.
func (p *pass) uncordon(ctx context.Context) error {
	if paused(p.machine) || unsupportedSchema(p.machine) != "" || isUpdating(p.machine) || interrupted(p.machine) ||
		p.withdrawn ||
		meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionDrained) != nil {
		return nil
	}
	if !drain.Cordoned(p.node) {
		return nil
	}
	// What the node was drained for may have come since.
	if err := p.confirm(ctx, "putting its node back into service"); err != nil {
		return err
	}
	// A request that came late from a former leader is not in the cache yet, and would find pods on the node.
	node, err := drain.Uncordon(ctx, p.Target.Nodes, p.node, v1beta1.NodeAnnotationUpdateRequested,
		v1beta1.NodeAnnotationUpdateResult)
	if err != nil {
		return err
	}
	p.node = node
	return nil
}

// updateWaits says what an update waits for that drains the node or replaces the instance.
func (p *pass) updateWaits(reason, message string) {
	kind := v1beta1.ReasonUpdating
	if p.machine.Replacing() {
		kind = v1beta1.ReasonReplacing
	}
	p.setCondition(v1beta1.ConditionUpToDate, false, kind, message)
	p.waitsFor = &metav1.Condition{Reason: reason, Message: message}
}

// isUpdating reports whether the instance is being changed in place or replaced.
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

// replace takes the old instance down and opens the next attempt. Each step can be repeated: what is done is seen.
func (p *pass) replace(ctx context.Context) (progress, error) {
	m := p.machine
	if m.Spec.ProviderID != "" {
		for _, step := range []func(context.Context) (progress, error){p.findNodeToDelete, p.drain, p.deleteInstance, p.deleteNode} {
			if proceed, err := step(ctx); err != nil || !bool(proceed) {
				return wait, err
			}
		}
		if err := p.patchMachine(ctx, func(m *v1beta1.Machine) { m.Spec.ProviderID = "" }); err != nil {
			return wait, err
		}
	}
	p.node, p.instanceGone = nil, false
	p.endDrain()
	p.states.forget(client.ObjectKeyFromObject(m))
	dropCondition(&m.Status.Conditions, v1beta1.ConditionNodeHealthy)
	for _, kind := range []string{v1beta1.ConditionLaunched, v1beta1.ConditionRegistered} {
		p.setCondition(kind, false, v1beta1.ReasonReplacing, "The old instance is gone; a new one follows.")
	}
	// The cloud may show the old instance for a while, and the driver take it for the new one.
	m.Status.Launch = &v1beta1.LaunchStatus{Attempt: m.NextLaunchAttempt(), OldProviderID: m.Status.Launch.OldProviderID}
	m.Status.Phase, m.Status.FailureReason, m.Status.FailureMessage = v1beta1.MachineUpdating, "", ""
	p.forgetInterruption()
	m.Status.NodeRef, m.Status.NodeTemplate, m.Status.Applied, m.Status.Instance, m.Status.Addresses, m.Status.Version = nil, nil, nil, nil, nil, ""
	p.operation(v1beta1.OperationCreate, v1beta1.OperationProcessing, "The old instance is gone; a new one follows.", "")
	if err := p.writeStatus(ctx); err != nil {
		return wait, err
	}
	if proceed, err := p.launch(ctx); err != nil || !bool(proceed) {
		return wait, err
	}
	return p.update(ctx)
}
