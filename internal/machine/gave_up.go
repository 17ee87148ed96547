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

// A cloud may accept an instance and give up on it seconds later. For lack of capacity that is what another cloud
// answers to Create, so it has the same results: the same condition, the same waits between two tries, and the same
// time until the Machine is Failed. A set that replaced the Machine instead would ask again at once.

// failureUnjudged reports whether the status says that the instance failed, and nothing followed from that yet: a pass
// ended before it knew whether there is a Node.
func (s *instanceStep) failureUnjudged() bool {
	m := s.machine
	return m.Status.Instance.State == v1beta1.InstanceState(provider.StateFailed) && m.Status.NodeRef == nil &&
		m.Status.FailureReason != v1beta1.FailureCreateError && !s.hasRun()
}

// gaveUp decides what follows when the provider gave up on an instance that has no Node. Where there is a Node, the
// instance runs whatever the provider says of it; the cache may lack one that registered a moment ago.
func (s *launchStep) gaveUp(ctx context.Context, in *provider.Instance) (progress, error) {
	if there, err := s.nodeIsThere(ctx); err != nil || there {
		return s.after(time.Second), err
	}
	m, message := s.machine, "The provider gave up on the instance: "+in.StateMessage
	if in.StateCode != provider.ResourceExhausted || launchReason(m) == v1beta1.ReasonInstanceAdopted {
		s.fail(v1beta1.FailureCreateError, message)
		return onMachine, nil // Its owner replaces it.
	}
	launch := v1beta1.LaunchStatus{Attempt: m.LaunchAttempt()}
	if m.Status.Launch != nil {
		launch = *m.Status.Launch
	}
	launch.Step, launch.OldProviderID = v1beta1.LaunchStepRetrying, m.Spec.ProviderID
	if launch.NoCapacitySince == nil {
		launch.NoCapacitySince = &metav1.Time{Time: s.attemptBegan()}
	}
	m.Status.Launch = &launch
	err, policy := provider.Errorf(in.StateCode, "%s", message), createRetryPolicy(in.StateCode)
	if s.trying(policy.reason, messageOf(err)) && s.failuresOf(v1beta1.OperationCreate) == 0 {
		s.warn(policy.reason, "Launch", messageOf(err))
	}
	s.operationFailed(v1beta1.OperationCreate, policy, err, "")
	s.failAfterTimeout(err)
	return s.after(time.Millisecond), nil // The step is durable before anything is removed.
}

// nodeIsThere asks the API server itself for a Node of the instance.
func (s *launchStep) nodeIsThere(ctx context.Context) (bool, error) {
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

// discard removes an instance that failed for lack of capacity, and opens the next attempt, which begins when the next
// try is due. Each step can be repeated.
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
			return s.runsAfterAll(), nil
		case s.teardown.leftBehind:
			return s.after(targetPoll), nil // Nobody knows whether it has become a Node.
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
		// Nobody can join with it any more.
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
	// The cloud may show the old instance for a while, which counts from now.
	if launched := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched); launched != nil {
		launched.LastTransitionTime = metav1.NewTime(s.now)
	}
	due := s.now
	if last := m.Status.LastOperation; last != nil && last.NextTryTime != nil {
		due = last.NextTryTime.Time
		if due.Sub(s.now) > furthestAhead {
			due = s.now // No wait is that long: somebody else has written it.
		}
	}
	s.states.forget(client.ObjectKeyFromObject(m))
	s.states.update(m, func(m *machineState) { m.pace.notBefore = due })
	s.trace.retries()
	return s.after(due.Sub(s.now)), nil
}

// runsAfterAll goes on with an instance that has become a Node although the provider gave up on it.
func (s *launchStep) runsAfterAll() progress {
	s.foundCapacity()
	s.machine.Status.Launch.Step = v1beta1.LaunchStepNone
	s.setCondition(v1beta1.ConditionLaunched, true, v1beta1.ReasonInstanceLaunched, "")
	return next
}

// removalWaits says what the removal of the failed instance waits for, unless that is the cloud's own time: why the
// instance failed is worth more.
func (s *launchStep) removalWaits(reason, message string) {
	switch reason {
	case v1beta1.ReasonInstanceTerminating, v1beta1.ReasonCreateSettling:
	default:
		s.update.waitsFor = &metav1.Condition{Reason: reason, Message: message}
	}
}

// lacksCapacity reports whether the cloud had no capacity for the last instance that it accepted for the Machine.
func lacksCapacity(m *v1beta1.Machine) bool {
	return m.Status.Launch != nil && m.Status.Launch.NoCapacitySince != nil
}

// foundCapacity notes that the instance runs.
func (s *launchStep) foundCapacity() {
	if lacksCapacity(s.machine) {
		launch := *s.machine.Status.Launch
		launch.NoCapacitySince = nil
		s.machine.Status.Launch = &launch
	}
}
