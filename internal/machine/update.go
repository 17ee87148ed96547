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

type updateStep struct {
	*pass
	// waitsFor describes what an update waits for if the update takes the node out of service.
	waitsFor *metav1.Condition
}

// run updates the instance to the spec. If the provider cannot update the instance in place, run replaces the instance
// of the same Machine. The author of a change does not have to know which of the two is possible.
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
		return next, nil // An older version launched the instance without recording its configuration.
	}
	if why := s.unsupportedSchema(m); why != "" {
		s.setCondition(v1beta1.ConditionUpToDate, false, v1beta1.ReasonUnknownTypeVersion, why)
		return next, nil
	}
	if s.unchanged() && !updateRequested(s.machine) {
		s.recordUpToDate()
		return next, nil
	}
	if machinestate.Paused(m) {
		s.setCondition(v1beta1.ConditionUpToDate, false, v1beta1.ReasonUpdatePending,
			"The specification has changed, but the machine is paused. The instance is updated when the pause ends.")
		return next, nil
	}
	inputs, err := s.Classes.Resolve(ctx, m)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		s.drain.suspend()
		s.reportNotUpdated(v1beta1.ReasonUpdateError, missing.Message)
		s.onMissing(missing)
		return next, nil
	}
	if err != nil {
		return onError, fmt.Errorf("resolve the class of the update: %w", err)
	}
	wanted := appliedOf(m, inputs)
	if *m.Status.Applied == *wanted && !updateRequested(s.machine) {
		// Only the name of the class has changed.
		s.recordUpToDate()
		return next, nil
	}
	if inputs.Provider != s.Cloud.Name() {
		s.drain.end()
		s.reportNotUpdated(v1beta1.ReasonUnsupportedChange,
			fmt.Sprintf("The instance belongs to provider %q and cannot be moved to provider %q.", s.Cloud.Name(), inputs.Provider))
		return next, nil
	}
	fingerprint := "update " + fingerprintOf(m, inputs, s.launch.attempt())
	switch left, never := s.states.get(m).pace.waitTime(fingerprint, s.now); {
	case never:
		return next, nil // The provider refused the update permanently, and nothing has changed.
	case left > 0:
		s.requeueIn(left)
		return next, nil
	}
	return s.updateInstance(ctx, inputs, wanted, fingerprint, false)
}

// unchanged reports whether the spec still equals the recorded one. The class is not read, because a class never
// changes.
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

func (s *updateStep) recordUpToDate() {
	s.setCondition(v1beta1.ConditionUpToDate, true, v1beta1.ReasonUpToDate, "")
	s.drain.end()
}

func appliedOf(m *v1beta1.Machine, inputs resolve.Resolved) *v1beta1.AppliedStatus {
	return &v1beta1.AppliedStatus{ClassName: inputs.ClassName, ProviderSpecHash: inputs.SpecHash(),
		Version: m.Spec.Version}
}

// updateInstance calls Update. If the update needs a drained node, updateInstance drains the node first and then calls
// Update again.
func (s *updateStep) updateInstance(ctx context.Context, inputs resolve.Resolved, wanted *v1beta1.AppliedStatus,
	fingerprint string, drained bool) (progress, error) {
	m := s.machine
	node, err := s.agent.pairedNode(ctx)
	if err != nil {
		return onError, err
	}
	if s.agent.waitsForAgent(node) {
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
	if err := s.recordRequest(ctx); err != nil {
		return onError, err
	}
	m = s.machine
	result, err := s.Cloud.Update(s.trace.traceUpdate(ctx), req)
	if err != nil {
		s.noteAmbiguous(err, fingerprint)
		if provider.IsNotFound(err) {
			if s.instance.showsWithin() > 0 {
				s.reportUpdating("Waiting for the provider to show the instance.")
				return next, nil
			}
			s.states.update(m, func(r *machineState) { r.instance.suspectID = m.Spec.ProviderID })
		}
		s.recordUpdateFailure(err, fingerprint)
		return next, nil
	}
	s.callSucceeded()
	switch result.Outcome {
	case provider.UpdateDone:
		if same, err := s.agent.versionUnchanged(ctx, node); err != nil || !same {
			return onError.unless(err == nil), err
		}
		// The cloud does not know whether an agent has received a request for another update, which the agent may still
		// execute.
		if hasRequest(node) && m.Spec.Version != "" {
			return s.agent.run(ctx, wanted, fingerprint)
		}
		if done, err := s.agent.withdrawRequest(ctx, node); err != nil || !done {
			return onError.unless(err == nil), err
		}
		if left := s.settlesIn(fingerprint); left > 0 {
			s.reportNotUpdated(v1beta1.ReasonUpdating, "The update is done. Updating the instance once more after the settle time, because an earlier request may still change it.")
			s.requeueIn(left)
			return next, nil
		}
		s.states.update(m, func(r *machineState) { r.pace, r.update = pace{}, updateState{} })
		m.Status.Applied = wanted
		s.phaseEnded(phaseUpdate, s.updateBegan())
		if result.Instance != nil && m.Status.Instance != nil {
			m.Status.Instance.Type, m.Status.Instance.State = result.Instance.Type, v1beta1.InstanceState(result.Instance.State)
		}
		s.recordUpToDate()
		s.operation(v1beta1.OperationUpdate, v1beta1.OperationSucceeded, "The instance was updated in place.", "")
		s.note(reasonUpdated, "Update", "The instance was updated in place.")
		return next, nil
	case provider.UpdateInProgress:
		s.reportUpdating("The provider is updating the instance.")
		return next, nil
	case provider.UpdateNeedsDrain:
		if drained {
			s.recordUpdateFailure(provider.Errorf(provider.Internal,
				"the driver requested a drain, but the node is already drained"), fingerprint)
			return next, nil
		}
		for _, step := range []func(context.Context) (progress, error){s.teardown.findNode, s.drain.run} {
			proceed, err := step(ctx)
			if err != nil {
				return onError, err
			}
			if proceed != next {
				return next, nil // The node is observed as usual during the drain.
			}
		}
		return s.updateInstance(ctx, inputs, wanted, fingerprint, true)
	case provider.UpdateNeedsReplacement:
		s.states.update(m, func(r *machineState) { r.pace = pace{} })
		m.Status.Phase = v1beta1.MachineUpdating
		m.Status.Launch = &v1beta1.LaunchStatus{Attempt: m.LaunchAttempt(), Step: v1beta1.LaunchStepReplacing,
			OldProviderID: m.Spec.ProviderID}
		s.updateWaits(v1beta1.ReasonReplacing, "Replacing the instance: "+result.Reason)
		s.note(v1beta1.ReasonReplacing, "Update", "Replacing the instance: "+result.Reason)
		// The step must be written to the status before anything is deleted.
		if err := s.writeStatus(ctx); err != nil {
			return onError, err
		}
		s.trace.needsReplacement()
		return s.replace(s.trace.beginPass(ctx))
	case provider.UpdateByAgent:
		return s.agent.run(ctx, wanted, fingerprint)
	case provider.UpdateRefused:
		if done, err := s.agent.withdrawRequest(ctx, node); err != nil || !done {
			return onError.unless(err == nil), err
		}
		s.refuseUpdate(result.Reason, fingerprint)
		return next, nil
	}
	s.recordUpdateFailure(provider.Errorf(provider.Internal, "the driver returned the unknown outcome %q", result.Outcome), fingerprint)
	return next, nil
}

// refuseUpdate reports that the update is not possible. It is not retried until something changes.
func (s *updateStep) refuseUpdate(reason, fingerprint string) {
	s.states.update(s.machine, func(r *machineState) { *r = machineState{pace: pace{tried: fingerprint}} })
	s.drain.end()
	s.reportNotUpdated(v1beta1.ReasonUnsupportedChange, reason)
	s.operation(v1beta1.OperationUpdate, v1beta1.OperationFailed, reason, "")
}

func (s *updateStep) reportUpdating(message string) {
	s.operation(v1beta1.OperationUpdate, v1beta1.OperationProcessing, message, "")
	started := s.operationBegan()
	reason := v1beta1.ReasonUpdating
	if timeout := s.machine.Spec.Timeouts.UpdateOrDefault(); s.now.Sub(started) >= timeout {
		reason = v1beta1.ReasonUpdateTimeout
		message = fmt.Sprintf("The update has taken longer than %s.", timeout)
	} else {
		s.requeueIn(started.Add(timeout).Sub(s.now))
	}
	s.reportNotUpdated(reason, message)
	s.requeueIn(pollInterval(s.now.Sub(started)))
}

// reportNotUpdated reports why the instance does not match the spec. The instance continues to run unchanged.
func (s *updateStep) reportNotUpdated(reason, message string) {
	if s.setCondition(v1beta1.ConditionUpToDate, false, reason, message) && reason != v1beta1.ReasonUpdating {
		s.warn(reason, "Update", message)
	}
}

func (s *updateStep) recordUpdateFailure(err error, fingerprint string) {
	s.reportNotUpdated(v1beta1.ReasonUpdateError, messageOf(err))
	s.operationFailed(v1beta1.OperationUpdate, createRetryPolicy(provider.CodeOf(err)), err, fingerprint)
}

// drainedForUpdate reports whether the node is ready for a disruptive update: the node was drained, it is still
// cordoned, and its volumes are detached.
func (s *updateStep) drainedForUpdate(node *corev1.Node) bool {
	return s.isTrue(v1beta1.ConditionDrained) && s.isTrue(v1beta1.ConditionVolumesDetached) &&
		(node == nil || node.Spec.Unschedulable)
}

// updateWaits reports what an update waits for that drains the node or replaces the instance.
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

// replace deletes the old instance and opens the next attempt. After a crash, all steps can be repeated, because each
// step checks what was already done.
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
		s.setCondition(kind, false, v1beta1.ReasonReplacing, "The old instance is gone. Creating a new one.")
	}
	// The cloud may still show the old instance for some time, and the driver could mistake it for the new one.
	m.Status.Launch = &v1beta1.LaunchStatus{Attempt: m.NextLaunchAttempt(), OldProviderID: m.Status.Launch.OldProviderID}
	m.Status.Phase, m.Status.FailureReason, m.Status.FailureMessage = v1beta1.MachineUpdating, "", ""
	s.interruption.forgetNotice()
	m.Status.NodeRef, m.Status.NodeTemplate, m.Status.Applied = nil, nil, nil
	m.Status.Instance, m.Status.Addresses, m.Status.Version = nil, nil, ""
	s.operation(v1beta1.OperationCreate, v1beta1.OperationProcessing, "The old instance is gone. Creating a new one.", "")
	if err := s.writeStatus(ctx); err != nil {
		return onError, err
	}
	s.trace.oldInstanceGone(old)
	if proceed, err := s.launch.run(s.trace.beginPass(ctx)); err != nil || proceed != next {
		return proceed, err
	}
	return s.run(ctx)
}
