package machine

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/pkg/provider"
)

// A cloud may accept the creation of an instance and report some seconds later that the instance failed for lack of
// capacity. Other clouds reject Create for the same reason. Both cases have the same condition, the same delays between
// the attempts, and the same time until the Machine is Failed. If the MachineSet replaced the Machine instead, it would
// request another instance at once.

// failurePending reports whether the instance in the status has failed and the failure must still be handled. An
// earlier pass may have ended before it knew whether the instance has a Node.
func (p *pass) failurePending() bool {
	m := p.machine
	return m.Status.Instance.State == v1beta1.InstanceState(provider.StateFailed) && m.Status.NodeRef == nil &&
		m.Status.FailureReason != v1beta1.FailureCreateError && !p.hasRun()
}

// handleFailedInstance decides what to do with an instance that the provider reports as failed. An instance with a
// Node is running, whatever the provider reports. The Node may have registered a moment ago, so it is read from the
// API server.
func (p *pass) handleFailedInstance(ctx context.Context, in *provider.Instance) (progress, error) {
	if there, err := p.hasLiveNode(ctx); err != nil || there {
		return p.after(time.Second), err
	}
	m, message := p.machine, "The provider reports that the instance failed: "+in.StateMessage
	if in.StateCode != provider.ResourceExhausted || launchReason(m) == v1beta1.ReasonInstanceAdopted {
		p.fail(v1beta1.FailureCreateError, message)
		return onMachine, nil // The owner of the Machine replaces it.
	}
	if err := p.recordLateNoCapacity(ctx, message); err != nil {
		return onError, err
	}
	launch := v1beta1.LaunchStatus{Attempt: m.LaunchAttempt()}
	if m.Status.Launch != nil {
		launch = *m.Status.Launch
	}
	launch.Step, launch.OldProviderID = v1beta1.LaunchStepRetrying, m.Spec.ProviderID
	if launch.NoCapacitySince == nil {
		launch.NoCapacitySince = &metav1.Time{Time: attemptStart(p.machine)}
	}
	m.Status.Launch = &launch
	err, policy := provider.Errorf(in.StateCode, "%s", message), createRetryPolicy(in.StateCode)
	if p.reportNotLaunched(policy.reason, messageOf(err)) && failuresOf(p.machine, v1beta1.OperationCreate) == 0 {
		p.warn(policy.reason, "Launch", messageOf(err))
	}
	p.operationFailed(v1beta1.OperationCreate, policy, err, "")
	p.failAfterTimeout(err)
	return p.after(time.Millisecond), nil // The step must be durable before anything is deleted.
}

func (p *pass) hasLiveNode(ctx context.Context) (bool, error) {
	name := index.NodeName(p.machine)
	if p.Target == nil || name == "" {
		return false, nil
	}
	node := &corev1.Node{}
	err := p.Target.LiveClient.Get(ctx, client.ObjectKey{Name: name}, node)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return node.Spec.ProviderID == p.machine.NodeProviderID() || node.Spec.ProviderID == "", nil
}

// awaitNextAttempt opens the next attempt after the failed instance is gone. The attempt starts when the delay after
// the failure is over.
func (p *pass) awaitNextAttempt(ctx context.Context) (progress, error) {
	m := p.machine
	state, err := p.capacityState(ctx)
	if err != nil {
		return onError, err
	}
	if p.Target != nil {
		// From now on, no instance may join with the token.
		if err := p.dropToken(ctx); err != nil {
			return onError, err
		}
	}
	p.node = nil
	m.Status.Launch = &v1beta1.LaunchStatus{Attempt: m.NextLaunchAttempt(), OldProviderID: m.Status.Launch.OldProviderID,
		NoCapacitySince: m.Status.Launch.NoCapacitySince}
	m.Status.Instance, m.Status.Addresses, m.Status.Applied = nil, nil, nil
	for _, kind := range []string{v1beta1.ConditionRegistered, v1beta1.ConditionNodeHealthy, v1beta1.ConditionUpToDate} {
		dropCondition(&m.Status.Conditions, kind)
	}
	// The cloud may still show the old instance for some time. The settle time counts from now.
	if launched := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched); launched != nil {
		launched.LastTransitionTime = metav1.NewTime(p.now)
	}
	if inPlacement(m) {
		m.Status.Launch.Step = v1beta1.LaunchStepAwaitingCapacity
		p.reportAwaitingCapacity(state)
		return p.parked(), nil
	}
	due := p.now
	if last := m.Status.LastOperation; last != nil && last.NextTryTime != nil {
		due = last.NextTryTime.Time
		if due.Sub(p.now) > furthestAhead {
			due = p.now // No delay is that long, so another client must have written this time.
		}
	}
	p.states.machines.Forget(client.ObjectKeyFromObject(m))
	p.states.update(m, func(m *machineState) { m.pace.notBefore = due })
	p.trace.noteRetry()
	return p.after(due.Sub(p.now)), nil
}

// continueRunning handles an instance that became a Node although the provider reported that the instance had failed.
func (p *pass) continueRunning() progress {
	foundCapacity(p.machine)
	p.machine.Status.Launch.Step = v1beta1.LaunchStepNone
	p.setCondition(v1beta1.ConditionLaunched, true, v1beta1.ReasonInstanceLaunched, "")
	return next
}

// removalWaits reports what the deletion of the failed instance waits for. While the deletion only waits for the cloud,
// the status keeps the reason of the failure, which is more useful.
func (p *pass) removalWaits(reason, message string) {
	switch reason {
	case v1beta1.ReasonInstanceTerminating, v1beta1.ReasonCreateSettling:
	default:
		p.waitsFor = &metav1.Condition{Reason: reason, Message: message}
	}
}

// lacksCapacity reports whether the last instance failed for lack of capacity after the cloud had accepted it.
func lacksCapacity(m *v1beta1.Machine) bool {
	return m.Status.Launch != nil && m.Status.Launch.NoCapacitySince != nil
}

func foundCapacity(m *v1beta1.Machine) {
	if lacksCapacity(m) {
		launch := *m.Status.Launch
		launch.NoCapacitySince = nil
		m.Status.Launch = &launch
	}
}
