package machine

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/machine/preservation"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/pkg/provider"
)

// A cloud may accept the creation of an instance and report some seconds later that the instance failed for lack of
// capacity. Other clouds reject Create for the same reason. Both cases have the same condition, the same delays between
// the attempts, and the same time until the Machine is Failed. If the MachineSet replaced the Machine instead, it would
// request another instance at once.

// failurePending reports whether the instance in the status has failed and the failure must still be handled. An
// earlier pass may have ended before it knew whether the instance has a Node.
func (s *instanceStep) failurePending() bool {
	m := s.machine
	return m.Status.Instance.State == v1beta1.InstanceState(provider.StateFailed) && m.Status.NodeRef == nil &&
		m.Status.FailureReason != v1beta1.FailureCreateError && !s.hasRun()
}

// handleFailedInstance decides what to do with an instance that the provider reports as failed. If the instance has a
// Node, it runs, whatever the provider reports. The Node may have registered a moment ago, so it is read from the API
// server.
func (s *launchStep) handleFailedInstance(ctx context.Context, in *provider.Instance) (progress, error) {
	if there, err := s.hasLiveNode(ctx); err != nil || there {
		return s.after(time.Second), err
	}
	m, message := s.machine, "The provider reports that the instance failed: "+in.StateMessage
	if in.StateCode != provider.ResourceExhausted || launchReason(m) == v1beta1.ReasonInstanceAdopted {
		s.fail(v1beta1.FailureCreateError, message)
		return onMachine, nil // The owner of the Machine replaces it.
	}
	launch := v1beta1.LaunchStatus{Attempt: m.LaunchAttempt()}
	if m.Status.Launch != nil {
		launch = *m.Status.Launch
	}
	launch.Step, launch.OldProviderID = v1beta1.LaunchStepRetrying, m.Spec.ProviderID
	if launch.NoCapacitySince == nil {
		launch.NoCapacitySince = &metav1.Time{Time: s.attemptStart()}
	}
	m.Status.Launch = &launch
	err, policy := provider.Errorf(in.StateCode, "%s", message), createRetryPolicy(in.StateCode)
	if s.reportNotLaunched(policy.reason, messageOf(err)) && s.failuresOf(v1beta1.OperationCreate) == 0 {
		s.warn(policy.reason, "Launch", messageOf(err))
	}
	s.operationFailed(v1beta1.OperationCreate, policy, err, "")
	s.failAfterTimeout(err)
	return s.after(time.Millisecond), nil // The step must be durable before anything is deleted.
}

func (s *launchStep) hasLiveNode(ctx context.Context) (bool, error) {
	name := index.NodeName(s.machine)
	if s.Target == nil || name == "" {
		return false, nil
	}
	node := &corev1.Node{}
	err := s.Target.Live.Get(ctx, client.ObjectKey{Name: name}, node)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return node.Spec.ProviderID == s.machine.NodeProviderID() || node.Spec.ProviderID == "", nil
}

// discard deletes an instance that failed for lack of capacity. Then it opens the next attempt, which starts when the
// delay after the failure is over. Each step can be repeated after a crash.
func (s *launchStep) discard(ctx context.Context) (progress, error) {
	m := s.machine
	if machinestate.Paused(m) || preservation.Preserved(m) || s.unsupportedSchema(m) != "" {
		return onMachine, nil
	}
	if m.Spec.ProviderID != "" {
		if proceed, err := s.teardown.findNode(ctx); err != nil || proceed != next {
			return proceed, err
		}
		switch {
		case s.node != nil:
			return s.continueRunning(), nil
		case s.teardown.leftBehind:
			return s.after(targetPoll), nil // The instance may have become a Node.
		}
		for _, step := range []func(context.Context) (progress, error){s.teardown.deleteInstance, s.teardown.deleteNode} {
			if proceed, err := step(ctx); err != nil || proceed != next {
				return proceed, err
			}
		}
		if err := s.patchMachine(ctx, func(m *v1beta1.Machine) { m.Spec.ProviderID = "" }); err != nil {
			return onError, err
		}
	}
	if s.Target != nil {
		// From now on, no instance may join with the token.
		if err := s.dropToken(ctx); err != nil {
			return onError, err
		}
	}
	s.node, s.teardown.instanceGone = nil, false
	m.Status.Launch = &v1beta1.LaunchStatus{Attempt: m.NextLaunchAttempt(), OldProviderID: m.Status.Launch.OldProviderID,
		NoCapacitySince: m.Status.Launch.NoCapacitySince}
	m.Status.Instance, m.Status.Addresses, m.Status.Applied = nil, nil, nil
	for _, kind := range []string{v1beta1.ConditionRegistered, v1beta1.ConditionNodeHealthy, v1beta1.ConditionUpToDate} {
		dropCondition(&m.Status.Conditions, kind)
	}
	// The cloud may still show the old instance for some time. The settle time counts from now.
	if launched := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched); launched != nil {
		launched.LastTransitionTime = metav1.NewTime(s.now)
	}
	due := s.now
	if last := m.Status.LastOperation; last != nil && last.NextTryTime != nil {
		due = last.NextTryTime.Time
		if due.Sub(s.now) > furthestAhead {
			due = s.now // No delay is that long, so another client must have written it.
		}
	}
	s.states.forget(client.ObjectKeyFromObject(m))
	s.states.update(m, func(m *machineState) { m.pace.notBefore = due })
	s.trace.noteRetry()
	return s.after(due.Sub(s.now)), nil
}

// continueRunning handles an instance that became a Node although the provider reported that the instance had failed.
func (s *launchStep) continueRunning() progress {
	s.foundCapacity()
	s.machine.Status.Launch.Step = v1beta1.LaunchStepNone
	s.setCondition(v1beta1.ConditionLaunched, true, v1beta1.ReasonInstanceLaunched, "")
	return next
}

// removalWaits reports what the deletion of the failed instance waits for. While the deletion only waits for the cloud,
// the status keeps the reason of the failure, which is more useful.
func (s *launchStep) removalWaits(reason, message string) {
	switch reason {
	case v1beta1.ReasonInstanceTerminating, v1beta1.ReasonCreateSettling:
	default:
		s.update.waitsFor = &metav1.Condition{Reason: reason, Message: message}
	}
}

// lacksCapacity reports whether the last instance failed for lack of capacity after the cloud had accepted it.
func lacksCapacity(m *v1beta1.Machine) bool {
	return m.Status.Launch != nil && m.Status.Launch.NoCapacitySince != nil
}

func (s *launchStep) foundCapacity() {
	if lacksCapacity(s.machine) {
		launch := *s.machine.Status.Launch
		launch.NoCapacitySince = nil
		s.machine.Status.Launch = &launch
	}
}
