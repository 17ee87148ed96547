package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

// instanceStep keeps what is known of a recorded instance true.
type instanceStep struct {
	*pass
	// undecided is true when the cloud did not show the instance and it does not count as absent yet.
	undecided bool
	// failed is the instance as this pass has read it, if the provider gave up on it.
	failed *provider.Instance
}

// follow keeps what is known of a recorded instance true until it runs.
func (s *instanceStep) follow(ctx context.Context) (progress, error) {
	if bornWithInstance(s.machine) {
		return s.adoption.run(ctx)
	}
	status := s.machine.Status.Instance
	known := s.isTrue(v1beta1.ConditionLaunched) && status != nil
	if known {
		if gone, err := s.checkSuspect(ctx); gone || err != nil {
			return onMachine, err // Its owner replaces it.
		}
	}
	if known && status.State != v1beta1.InstancePending && !s.failureUnjudged() {
		return next, nil
	}
	if known && s.machine.Status.NodeRef != nil {
		return next, nil // Its Node says more than the provider could.
	}
	if known && s.restoreBooted() {
		return next, nil
	}
	inputs, err := s.Classes.ResolveForDeletion(ctx, s.machine)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		if !known {
			s.launch.refused(missing.Reason, missing.Message)
		}
		return (onInputs | s.after(secretBackstop)).unless(known), nil
	}
	if err != nil {
		return onError, fmt.Errorf("resolve the machine's class: %w", err)
	}
	instance, err := s.get(ctx, inputs)
	switch {
	case provider.IsNotFound(err):
		return s.followAbsent(ctx, inputs, known), nil
	case err != nil && s.machine.Status.FailureReason == v1beta1.FailureInstanceVanished:
		return onMachine, nil // What the provider said of it before holds: its owner replaces it.
	case err != nil:
		reason := s.lookupFailed(err)
		if !known {
			// Only the status was lost, by a crash right after the provider ID was written.
			s.launch.trying(reason, messageOf(err))
			s.failAfterTimeout(err)
		}
		// Otherwise it goes on following the instance: the Node may still come.
		return atTime.unless(known), nil
	case undescribed(s.machine) && instance.OwnedBy(s.ClusterID, identity(s.machine)) != nil && s.showsWithin() > 0:
		// The tags of the Machine's instance may not show yet. The Machine would refuse its own instance for good.
		s.launch.launching("Waiting until the provider would show the instance's tags.")
		return s.after(min(s.showsWithin(), s.pollInterval())), nil
	case undescribed(s.machine) && instance.OwnedBy(s.ClusterID, identity(s.machine)) != nil:
		return s.adoption.run(ctx)
	}
	s.states.update(s.machine, func(m *machineState) { m.instance.getFailures = 0 })
	s.shown()
	s.launched(inputs, instance)
	return next, nil
}

// lookupFailed asks for another lookup after an error that says nothing of the instance, and returns the reason to
// show.
func (s *instanceStep) lookupFailed(err error) (reason string) {
	s.shown() // A read that failed is not the second of two.
	c := lookupRetryPolicy(provider.CodeOf(err))
	s.requeueIn(c.backoff(s.countFailedCheck(), provider.RetryAfter(err), string(s.machine.UID)))
	return c.reason
}

// pollInterval is how often a pending instance is read.
func (s *instanceStep) pollInterval() time.Duration {
	return pollInterval(s.now.Sub(s.launch.attemptBegan()))
}

// pollInterval is how often an operation at the provider is polled: often at first, because most end
// quickly.
func pollInterval(age time.Duration) time.Duration {
	return min(max(age/4, time.Second), 30*time.Second)
}

func (s *instanceStep) get(ctx context.Context, inputs resolve.Resolved) (*provider.Instance, error) {
	req := provider.GetRequest{Machine: identity(s.machine), Class: inputs.Class(), ClusterID: s.ClusterID,
		ProviderID: s.machine.Spec.ProviderID}
	req.Scope = s.scope()
	instance, err := s.Cloud.Get(ctx, req)
	if err == nil {
		s.foundIn(req.Scope)
	}
	return instance, err
}

// readAddresses asks for the addresses of an instance that had none yet when it was seen running: some get theirs from
// their network while they boot. It is asked once, when the Node has come, whose kubelet needed one; without an answer
// the status goes without addresses.
func (s *instanceStep) readAddresses(ctx context.Context) {
	if s.machine.Status.Instance == nil || hasIP(s.machine.Status.Addresses) {
		return
	}
	inputs, err := s.Classes.ResolveForDeletion(ctx, s.machine)
	if err != nil {
		return
	}
	instance, err := s.get(ctx, inputs)
	if err == nil && hasIP(instance.Addresses) && instance.OwnedBy(s.ClusterID, identity(s.machine)) == nil {
		s.machine.Status.Addresses = instance.Addresses
	}
}

// hasIP reports whether one of the addresses is no name.
func hasIP(addresses []corev1.NodeAddress) bool {
	return slices.ContainsFunc(addresses, func(a corev1.NodeAddress) bool {
		return a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP
	})
}

// launched records a success.
func (s *instanceStep) launched(inputs resolve.Resolved, instance *provider.Instance) {
	m := s.machine
	userDataHash, nodeID, account := "", "", provider.AccountOf(s.Cloud, inputs.Class())
	if known := m.Status.Instance; known != nil {
		userDataHash, nodeID, account = known.UserDataHash, known.NodeProviderID, cmp.Or(account, known.Account)
	} else {
		nodeID = nodeProviderID(inputs.NodeProviderID, instance)
		if s.launch.created {
			userDataHash = resolve.UserDataHash(m.Namespace, inputs.UserData)
		}
	}
	m.Status.Instance = &v1beta1.InstanceStatus{
		Account:      account,
		UserDataHash: userDataHash,

		State:          stateOf(m.Status.Instance, instance),
		Type:           instance.Type,
		Region:         instance.Region,
		Zone:           instance.Zone,
		NodeName:       instance.NodeName,
		NodeProviderID: nodeID,
		Provider:       s.Cloud.Name(),
		CredentialsRef: inputs.CredentialsRef,
		Scope:          instance.Scope,
	}
	s.foundIn(instance.Scope)
	if !instance.LaunchTime.IsZero() {
		// As it is stored, or it would look changed at every look.
		m.Status.Instance.LaunchTime = &metav1.Time{Time: instance.LaunchTime.Truncate(time.Second)}
	}
	m.Status.Addresses = instance.Addresses
	if m.Status.NodeRef == nil && m.Status.Phase == v1beta1.MachineUpdating {
		m.Status.Phase = v1beta1.MachineProvisioned // A new instance has yet to become a Node.
	}
	if m.Status.Applied == nil {
		m.Status.Applied = s.madeFrom(inputs)
	}
	failures := s.failuresOf(v1beta1.OperationCreate)
	if s.setCondition(v1beta1.ConditionLaunched, true, launchReason(m), "") {
		s.operation(v1beta1.OperationCreate, v1beta1.OperationProcessing, "The instance exists; waiting for its node.", "")
		if lacksCapacity(m) {
			m.Status.LastOperation.Attempts = failures // That an instance was accepted does not mean that there is capacity.
		}
	}
	if m.Adopting() {
		m.Status.Launch = nil
	}
	switch instance.State {
	case provider.StatePending:
		s.requeueIn(s.pollInterval())
	case provider.StateFailed:
		s.failed = instance
	case provider.StateRunning:
		s.launch.foundCapacity()
	}
}

// madeFrom returns what the instance was made from. If another pass has asked for it, and the specification may have
// changed since, nobody knows: then it is nothing, which no specification asks for, and an update follows.
func (s *instanceStep) madeFrom(inputs resolve.Resolved) *v1beta1.AppliedStatus {
	if s.launch.created || launchReason(s.machine) == v1beta1.ReasonInstanceAdopted || !s.changedSinceAsked() {
		return appliedOf(s.machine, inputs)
	}
	return &v1beta1.AppliedStatus{}
}

// changedSinceAsked reports whether the specification of a Machine whose instance is found, and not described yet, is
// another than when the status last said that there is none: but for the provider ID, which is written in between.
func (s *instanceStep) changedSinceAsked() bool {
	said := int64(1) // Nothing has to be written before the first instance is asked for.
	if c := meta.FindStatusCondition(s.before.Status.Conditions, v1beta1.ConditionLaunched); c != nil {
		said = c.ObservedGeneration
	}
	return s.machine.Generation > said+1
}

// countFailedCheck counts a failed check of the instance.
func (s *instanceStep) countFailedCheck() (times int32) {
	s.states.update(s.machine, func(m *machineState) {
		m.instance.getFailures++
		times = m.instance.getFailures
	})
	return times
}

// check asks the provider whether the instance of a Node in trouble is still there: at the transition into
// it, and again until it has answered, and as long as the instance is being removed. A process that began in the
// middle of it does not know, and asks.
func (s *instanceStep) check(ctx context.Context, transition bool) error {
	if known := s.states.get(s.machine); known.instance.checked && !transition ||
		s.machine.Status.FailureReason == v1beta1.FailureInstanceVanished {
		return nil
	}
	inputs, err := s.Classes.ResolveForDeletion(ctx, s.machine)
	if err != nil {
		return fmt.Errorf("resolve the machine's class: %w", err)
	}
	instance, err := s.get(ctx, inputs)
	switch {
	case provider.IsNotFound(err):
		if s.absent(ctx, inputs) {
			s.vanished() // The status remembers it, once it is written.
		}
	case err != nil:
		s.lookupFailed(err)
	default:
		s.machine.Status.Instance.State = stateOf(s.machine.Status.Instance, instance)
		// A preempted instance is followed to its end: its Node said so when it had hardly begun.
		going := instance.State == provider.StateTerminating
		if going {
			s.requeueIn(s.pollInterval())
		}
		s.states.update(s.machine, func(m *machineState) { m.instance.checked, m.instance.getFailures = !going, 0 })
		s.shown()
	}
	return nil
}

// refresh completes what was not known when the instance was asked for. The Machine is usable without it, so
// it is tried once: that its node is Ready proves that it runs, whatever the provider says or fails to say. Only
// where the provider does not show the instance yet it is tried until that must be over: its addresses are needed for
// certificates.
func (s *instanceStep) refresh(ctx context.Context) {
	s.machine.Status.Instance.State = v1beta1.InstanceRunning
	inputs, err := s.Classes.ResolveForDeletion(ctx, s.machine)
	if err != nil {
		return
	}
	instance, err := s.get(ctx, inputs)
	left := s.showsWithin()
	incomplete := provider.IsNotFound(err) && left > 0
	s.states.update(s.machine, func(m *machineState) { m.instance.incomplete = incomplete })
	if incomplete {
		s.requeueIn(min(left, s.pollInterval()))
	}
	if err != nil {
		return
	}
	s.machine.Status.Addresses = instance.Addresses
	if instance.State != provider.StatePending {
		s.machine.Status.Instance.State = v1beta1.InstanceState(instance.State)
	}
}

// bootGrace is how long the status may say of an instance that it is pending after it was seen running. Most become
// Nodes within it, and then both are one write instead of two.
const bootGrace = time.Minute

// booted is what the provider said of an instance that runs, and the status does not say yet.
type booted struct {
	at        time.Time
	instance  v1beta1.InstanceStatus
	addresses []corev1.NodeAddress
}

// restoreBooted puts into the status what was seen before, and reports whether there was anything.
func (s *instanceStep) restoreBooted() bool {
	seen := s.states.get(s.machine).instance.booted
	if seen == nil {
		return false
	}
	s.machine.Status.Instance, s.machine.Status.Addresses = seen.instance.DeepCopy(), seen.addresses
	return true
}

// onlyBooted reports whether all that the pass found out is that the instance runs, which can be written with what
// its Node brings. Others rely on the rest of what is known of an instance; that is never held back.
func (s *instanceStep) onlyBooted() bool {
	before, now := &s.before.Status, &s.machine.Status
	if before.Instance == nil || before.Instance.State != v1beta1.InstancePending ||
		now.Instance == nil || now.Instance.State != v1beta1.InstanceRunning {
		return false
	}
	rest := now.DeepCopy()
	rest.Addresses = before.Addresses
	was, is := before.Instance, rest.Instance
	is.State, is.Type, is.Region, is.Zone, is.LaunchTime = was.State, was.Type, was.Region, was.Zone, was.LaunchTime
	if !equality.Semantic.DeepEqual(before, rest) {
		return false
	}
	at := s.now
	if seen := s.states.get(s.machine).instance.booted; seen != nil {
		at = seen.at
	}
	left := at.Add(bootGrace).Sub(s.now)
	if left <= 0 {
		return false
	}
	s.states.update(s.machine, func(m *machineState) {
		m.instance.booted = &booted{at: at, instance: *now.Instance.DeepCopy(), addresses: now.Addresses}
	})
	s.requeueIn(left)
	return true
}

// replaced reports whether this is the instance that was replaced last, which the cloud still shows. Later than the
// settling time it cannot be: then a driver has given its ID to the new one.
func (s *instanceStep) replaced(instance *provider.Instance) bool {
	launch := s.machine.Status.Launch
	return launch != nil && launch.OldProviderID != "" && launch.OldProviderID == instance.ProviderID &&
		s.now.Sub(s.launch.attemptBegan()) <= s.Cloud.CreateSettle()
}

// stateOf is the state of an instance after a read. A read that is behind shows an instance that ran as one that has
// not booted; following it again would gain nothing.
func stateOf(before *v1beta1.InstanceStatus, read *provider.Instance) v1beta1.InstanceState {
	if before != nil && before.State == v1beta1.InstanceRunning && read.State == provider.StatePending {
		return before.State
	}
	return v1beta1.InstanceState(read.State)
}
