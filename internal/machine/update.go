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

// updateStep brings an instance to a specification that has changed.
type updateStep struct {
	*pass
	// waitsFor is what an update that takes the node out of service waits for.
	waitsFor *metav1.Condition
}

// run brings the instance to what the specification asks for: in place where the provider can, else by replacing it
// under the same Machine. Who changed the specification need not know which.
func (s *updateStep) run(ctx context.Context) (progress, error) {
	m := s.machine
	if machinestate.Paused(m) || s.unsupportedSchema(m) != "" {
		s.drain.suspend()
	}
	if m.Replacing() {
		if machinestate.Paused(m) {
			return onMachine, nil
		}
		return s.replace(ctx)
	}
	if m.Status.Applied == nil {
		return next, nil // Nothing to compare with: it was launched before this was recorded.
	}
	if why := s.unsupportedSchema(m); why != "" {
		s.setCondition(v1beta1.ConditionUpToDate, false, v1beta1.ReasonUnknownTypeVersion, why)
		return next, nil
	}
	if s.unchanged() && !askedToUpdate(s.machine) {
		s.upToDate()
		return next, nil
	}
	if machinestate.Paused(m) {
		s.setCondition(v1beta1.ConditionUpToDate, false, v1beta1.ReasonUpdatePending,
			"The specification has changed; nothing is done about it now.")
		return next, nil
	}
	inputs, err := s.Classes.Resolve(ctx, m)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		s.drain.suspend()
		s.notUpdated(v1beta1.ReasonUpdateError, missing.Message)
		return next, nil
	}
	if err != nil {
		return onError, fmt.Errorf("resolve the class of the update: %w", err)
	}
	wanted := appliedOf(m, inputs)
	if *m.Status.Applied == *wanted && !askedToUpdate(s.machine) {
		// Another name for the same.
		s.upToDate()
		return next, nil
	}
	if inputs.Provider != s.Cloud.Name() {
		s.drain.end()
		s.notUpdated(v1beta1.ReasonUnsupportedChange,
			fmt.Sprintf("The instance is of provider %q and cannot become one of %q.", s.Cloud.Name(), inputs.Provider))
		return next, nil
	}
	fingerprint := "update " + fingerprintOf(m, inputs, s.launch.attempt())
	switch left, never := s.states.get(m).pace.left(fingerprint, s.now); {
	case never:
		return next, nil // Refused for good, and nothing has changed.
	case left > 0:
		s.requeueIn(left)
		return next, nil
	}
	return s.updateInstance(ctx, inputs, wanted, fingerprint, false)
}

// unchanged compares what can be compared without reading the class, which never changes.
func (s *updateStep) unchanged() bool {
	applied, spec := s.machine.Status.Applied, s.machine.Spec
	if applied.Version != spec.Version {
		return false
	}
	if spec.ClassRef != nil {
		return applied.ClassName == spec.ClassRef.Name
	}
	return applied.ClassName == "" && spec.ProviderSpec != nil &&
		applied.ProviderSpecHash == resolve.Resolved{ProviderSpec: spec.ProviderSpec.Raw}.SpecHash()
}

// upToDate says that the instance is what the specification asks for, so that nothing is drained for a change any more.
func (s *updateStep) upToDate() {
	s.setCondition(v1beta1.ConditionUpToDate, true, v1beta1.ReasonUpToDate, "")
	s.drain.end()
}

// appliedOf is what an instance made from the inputs was made from.
func appliedOf(m *v1beta1.Machine, inputs resolve.Resolved) *v1beta1.AppliedStatus {
	return &v1beta1.AppliedStatus{ClassName: inputs.ClassName, ProviderSpecHash: inputs.SpecHash(),
		Version: m.Spec.Version}
}

// updateInstance asks the driver for the change, after draining the node if it needs that.
func (s *updateStep) updateInstance(ctx context.Context, inputs resolve.Resolved, wanted *v1beta1.AppliedStatus,
	fingerprint string, drained bool) (progress, error) {
	m := s.machine
	node, err := s.agent.pairedNode(ctx)
	if err != nil {
		return onError, err
	}
	if s.agent.needed(node) {
		return s.agent.run(ctx, wanted, fingerprint)
	}
	req := provider.UpdateRequest{
		Machine: identity(m), Class: inputs.Class(), ClusterID: s.ClusterID, ProviderID: m.Spec.ProviderID,
		Version: m.Spec.Version,
		Drained: drained || s.drainedForUpdate(node),
	}
	if m.Status.Instance != nil {
		req.Scope = m.Status.Instance.Scope
	}
	if node != nil {
		req.NodeVersion = node.Status.NodeInfo.KubeletVersion
	}
	if err := s.begin(ctx); err != nil {
		return onError, err
	}
	m = s.machine
	result, err := s.Cloud.Update(s.trace.updating(ctx), req)
	if err != nil {
		s.unanswered(err, fingerprint)
		if provider.IsNotFound(err) {
			if s.instance.showsWithin() > 0 {
				s.updating("Waiting for the provider to show the instance.")
				return next, nil
			}
			s.states.update(m, func(r *machineState) { r.instance.suspectID = m.Spec.ProviderID })
		}
		s.failed(err, fingerprint)
		return next, nil
	}
	s.answered()
	switch result.Outcome {
	case provider.UpdateDone:
		if same, err := s.agent.unchangedNode(ctx, node); err != nil || !same {
			return onError.unless(err == nil), err
		}
		// Of what an agent was asked for, and may be about to do, the cloud knows nothing.
		if hasRequest(node) && m.Spec.Version != "" {
			return s.agent.run(ctx, wanted, fingerprint)
		}
		if done, err := s.agent.withdrawRequest(ctx, node); err != nil || !done {
			return onError.unless(err == nil), err
		}
		if left := s.unsettled(fingerprint); left > 0 {
			s.notUpdated(v1beta1.ReasonUpdating, "The change is made. It is asked for once more when no earlier request can be on its way any more.")
			s.requeueIn(left)
			return next, nil
		}
		s.states.update(m, func(r *machineState) { r.pace, r.update = pace{}, updateState{} })
		m.Status.Applied = wanted
		s.ended(phaseUpdate, s.updateBegan())
		if result.Instance != nil && m.Status.Instance != nil {
			m.Status.Instance.Type, m.Status.Instance.State = result.Instance.Type, v1beta1.InstanceState(result.Instance.State)
		}
		s.upToDate()
		s.operation(v1beta1.OperationUpdate, v1beta1.OperationSucceeded, "The instance was updated in place.", "")
		s.note(reasonUpdated, "Update", "The instance was updated in place.")
		return next, nil
	case provider.UpdateInProgress:
		s.updating("The provider is updating the instance.")
		return next, nil
	case provider.UpdateNeedsDrain:
		if drained {
			s.failed(provider.Errorf(provider.Internal, "the driver asks for a drain again after it"), fingerprint)
			return next, nil
		}
		for _, step := range []func(context.Context) (progress, error){s.teardown.findNode, s.drain.run} {
			proceed, err := step(ctx)
			if err != nil {
				return onError, err
			}
			if proceed != next {
				return next, nil // Draining takes its time; the node is observed meanwhile.
			}
		}
		return s.updateInstance(ctx, inputs, wanted, fingerprint, true)
	case provider.UpdateNeedsReplacement:
		s.states.update(m, func(r *machineState) { r.pace = pace{} })
		m.Status.Phase = v1beta1.MachineUpdating
		m.Status.Launch = &v1beta1.LaunchStatus{Attempt: m.LaunchAttempt(), Step: v1beta1.LaunchStepReplacing,
			OldProviderID: m.Spec.ProviderID}
		s.updateWaits(v1beta1.ReasonReplacing, "The instance is replaced: "+result.Reason)
		s.note(v1beta1.ReasonReplacing, "Update", "The instance is replaced: "+result.Reason)
		// The step is durable before anything is taken down.
		if err := s.writeStatus(ctx); err != nil {
			return onError, err
		}
		s.trace.needsReplacement()
		return s.replace(s.trace.begin(ctx))
	case provider.UpdateByAgent:
		return s.agent.run(ctx, wanted, fingerprint)
	case provider.UpdateRefused:
		if done, err := s.agent.withdrawRequest(ctx, node); err != nil || !done {
			return onError.unless(err == nil), err
		}
		s.refused(result.Reason, fingerprint)
		return next, nil
	}
	s.failed(provider.Errorf(provider.Internal, "the driver answered %q", result.Outcome), fingerprint)
	return next, nil
}

// refused says that the change cannot be made. Nothing is tried again until something changes.
func (s *updateStep) refused(reason, fingerprint string) {
	s.states.update(s.machine, func(r *machineState) { *r = machineState{pace: pace{tried: fingerprint}} })
	s.drain.end()
	s.notUpdated(v1beta1.ReasonUnsupportedChange, reason)
	s.operation(v1beta1.OperationUpdate, v1beta1.OperationFailed, reason, "")
}

// updating says that a change in place is under way, and that it takes too long when it does.
func (s *updateStep) updating(message string) {
	s.operation(v1beta1.OperationUpdate, v1beta1.OperationProcessing, message, "")
	started := s.operationBegan()
	reason := v1beta1.ReasonUpdating
	if timeout := s.machine.Spec.Timeouts.UpdateOrDefault(); s.now.Sub(started) >= timeout {
		reason = v1beta1.ReasonUpdateTimeout
		message = fmt.Sprintf("The update takes longer than %s.", timeout)
	} else {
		s.requeueIn(started.Add(timeout).Sub(s.now))
	}
	s.notUpdated(reason, message)
	s.requeueIn(pollInterval(s.now.Sub(started)))
}

// notUpdated says why the instance is not what the specification asks for. The old one keeps running.
func (s *updateStep) notUpdated(reason, message string) {
	if s.setCondition(v1beta1.ConditionUpToDate, false, reason, message) && reason != v1beta1.ReasonUpdating {
		s.warn(reason, "Update", message)
	}
}

// failed records an error of Update and when the next try is due.
func (s *updateStep) failed(err error, fingerprint string) {
	s.notUpdated(v1beta1.ReasonUpdateError, messageOf(err))
	s.operationFailed(v1beta1.OperationUpdate, createRetryPolicy(provider.CodeOf(err)), err, fingerprint)
}

// drainedForUpdate reports whether the node was drained for a change that is not done yet, has not been uncordoned
// since, and its volumes are no longer waited for.
func (s *updateStep) drainedForUpdate(node *corev1.Node) bool {
	return s.isTrue(v1beta1.ConditionDrained) && s.isTrue(v1beta1.ConditionVolumesDetached) &&
		(node == nil || node.Spec.Unschedulable)
}

// updateWaits says what an update waits for that drains the node or replaces the instance.
func (s *updateStep) updateWaits(reason, message string) {
	if s.machine.Retrying() {
		s.launch.removalWaits(reason, message)
		return
	}
	kind := v1beta1.ReasonUpdating
	if s.machine.Replacing() {
		kind = v1beta1.ReasonReplacing
	}
	s.setCondition(v1beta1.ConditionUpToDate, false, kind, message)
	s.waitsFor = &metav1.Condition{Reason: reason, Message: message}
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
func (s *updateStep) replace(ctx context.Context) (progress, error) {
	m := s.machine
	if m.Spec.ProviderID != "" {
		for _, step := range []func(context.Context) (progress, error){
			s.teardown.findNode, s.drain.run, s.teardown.deleteInstance, s.teardown.deleteNode,
		} {
			if proceed, err := step(ctx); err != nil || proceed != next {
				return proceed, err
			}
		}
		if err := s.patchMachine(ctx, func(m *v1beta1.Machine) { m.Spec.ProviderID = "" }); err != nil {
			return onError, err
		}
	}
	old := m.DeepCopy()
	s.node, s.teardown.instanceGone = nil, false
	s.drain.end()
	s.states.forget(client.ObjectKeyFromObject(m))
	dropCondition(&m.Status.Conditions, v1beta1.ConditionNodeHealthy)
	for _, kind := range []string{v1beta1.ConditionLaunched, v1beta1.ConditionRegistered} {
		s.setCondition(kind, false, v1beta1.ReasonReplacing, "The old instance is gone; a new one follows.")
	}
	// The cloud may show the old instance for a while, and the driver take it for the new one.
	m.Status.Launch = &v1beta1.LaunchStatus{Attempt: m.NextLaunchAttempt(), OldProviderID: m.Status.Launch.OldProviderID}
	m.Status.Phase, m.Status.FailureReason, m.Status.FailureMessage = v1beta1.MachineUpdating, "", ""
	s.interruption.clear()
	m.Status.NodeRef, m.Status.NodeTemplate, m.Status.Applied = nil, nil, nil
	m.Status.Instance, m.Status.Addresses, m.Status.Version = nil, nil, ""
	s.operation(v1beta1.OperationCreate, v1beta1.OperationProcessing, "The old instance is gone; a new one follows.", "")
	if err := s.writeStatus(ctx); err != nil {
		return onError, err
	}
	s.trace.oldInstanceGone(old)
	if proceed, err := s.launch.run(s.trace.begin(ctx)); err != nil || proceed != next {
		return proceed, err
	}
	return s.run(ctx)
}
