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

// instanceStep keeps the record of the instance up to date.
type instanceStep struct {
	*pass
	// undecided is true if the cloud did not show the instance, and it does not count as absent yet.
	undecided bool
	// failed is the instance as this pass read it, if the provider reports that it failed.
	failed *provider.Instance
}

// follow reads a recorded instance until it runs.
func (s *instanceStep) follow(ctx context.Context) (progress, error) {
	if createdWithProviderID(s.machine) {
		return s.adoption.run(ctx)
	}
	status := s.machine.Status.Instance
	known := s.isTrue(v1beta1.ConditionLaunched) && status != nil
	if known {
		if gone, err := s.checkSuspect(ctx); gone || err != nil {
			return onMachine, err // Its owner replaces the Machine.
		}
	}
	if known && status.State != v1beta1.InstancePending && !s.failurePending() {
		return next, nil
	}
	if known && s.machine.Status.NodeRef != nil {
		return next, nil // The Node is better evidence than the provider.
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
		return onMachine, nil // The earlier finding of the provider still holds. Its owner replaces the Machine.
	case err != nil:
		reason := s.lookupFailed(err)
		if !known {
			// Only the status was lost, by a crash right after the provider ID was written.
			s.launch.trying(reason, messageOf(err))
			s.failAfterTimeout(err)
		}
		// Otherwise the pass continues, because the Node may still register.
		return atTime.unless(known), nil
	case instanceUnrecorded(s.machine) && instance.OwnedBy(s.ClusterID, identity(s.machine)) != nil && s.showsWithin() > 0:
		// The tags of the Machine's instance may not show yet. Without this wait, the Machine would permanently refuse
		// its own instance.
		s.launch.launching("Waiting for the settle time to pass, because the tags of a new instance may show late.")
		return s.after(min(s.showsWithin(), s.pollInterval())), nil
	case instanceUnrecorded(s.machine) && instance.OwnedBy(s.ClusterID, identity(s.machine)) != nil:
		return s.adoption.run(ctx)
	}
	s.states.update(s.machine, func(m *machineState) { m.instance.getFailures = 0 })
	s.noteShown()
	s.launched(inputs, instance)
	return next, nil
}

// lookupFailed schedules another lookup after an error that proves nothing about the instance. It returns the reason to
// report.
func (s *instanceStep) lookupFailed(err error) (reason string) {
	s.noteShown() // A failed read does not count as the second of two reads.
	c := lookupRetryPolicy(provider.CodeOf(err))
	s.requeueIn(c.backoff(s.countFailedCheck(), provider.RetryAfter(err), string(s.machine.UID)))
	return c.reason
}

// pollInterval returns how often a pending instance is read.
func (s *instanceStep) pollInterval() time.Duration {
	return pollInterval(s.now.Sub(s.launch.attemptBegan()))
}

// pollInterval returns how often an operation in the cloud is polled. It is short at first, because most operations end
// quickly.
func pollInterval(age time.Duration) time.Duration {
	return min(max(age/4, time.Second), 30*time.Second)
}

func (s *instanceStep) get(ctx context.Context, inputs resolve.Resolved) (*provider.Instance, error) {
	req := provider.GetRequest{Machine: identity(s.machine), Class: inputs.Class(), ClusterID: s.ClusterID,
		ProviderID: s.machine.Spec.ProviderID}
	req.Scope = s.scope()
	return s.Cloud.Get(ctx, req)
}

// scope returns the recorded scope of the instance, "" if none is recorded.
func (p *pass) scope() string {
	if status := p.machine.Status.Instance; status != nil {
		return status.Scope
	}
	return ""
}

// readAddresses reads the addresses of an instance that had none when it was first seen running, because some networks
// assign them during the boot. It reads only once, when the Node has registered, because its kubelet needed an address.
// Without an answer, the status stays without addresses.
func (s *instanceStep) readAddresses(ctx context.Context) {
	if s.machine.Status.Instance == nil || hasIP(s.machine.Status.Addresses) {
		return
	}
	inputs, err := s.Classes.ResolveForDeletion(ctx, s.machine)
	if err != nil {
		return
	}
	instance, err := s.get(ctx, inputs)
	if err == nil && hasIP(instance.AllAddresses()) && instance.OwnedBy(s.ClusterID, identity(s.machine)) == nil {
		s.machine.Status.Addresses = instance.AllAddresses()
	}
}

// hasIP reports whether one of the addresses is an IP address.
func hasIP(addresses []corev1.NodeAddress) bool {
	return slices.ContainsFunc(addresses, func(a corev1.NodeAddress) bool {
		return a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP
	})
}

// launched records an instance that exists.
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
	if !instance.LaunchTime.IsZero() {
		// Truncated as in storage. Otherwise it would seem to change at every read.
		m.Status.Instance.LaunchTime = &metav1.Time{Time: instance.LaunchTime.Truncate(time.Second)}
	}
	m.Status.Addresses = instance.AllAddresses()
	if m.Status.NodeRef == nil && m.Status.Phase == v1beta1.MachineUpdating {
		m.Status.Phase = v1beta1.MachineProvisioned // The new instance has yet to become a Node.
	}
	if m.Status.Applied == nil {
		m.Status.Applied = s.createdFrom(inputs)
	}
	failures := s.failuresOf(v1beta1.OperationCreate)
	if s.setCondition(v1beta1.ConditionLaunched, true, launchReason(m), "") {
		s.operation(v1beta1.OperationCreate, v1beta1.OperationProcessing, "The instance exists. Waiting for its node.", "")
		if lacksCapacity(m) {
			m.Status.LastOperation.Attempts = failures // An accepted instance does not mean that there is capacity.
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

// createdFrom returns the configuration from which the instance was created. If another pass called Create and the
// specification may have changed since, the configuration is unknown. Then the result is empty, which never equals a
// specification, so that the instance is updated.
func (s *instanceStep) createdFrom(inputs resolve.Resolved) *v1beta1.AppliedStatus {
	if s.launch.created || launchReason(s.machine) == v1beta1.ReasonInstanceAdopted || !s.changedSinceCreate() {
		return appliedOf(s.machine, inputs)
	}
	return &v1beta1.AppliedStatus{}
}

// changedSinceCreate reports whether the specification of a Machine without a recorded instance may have changed since
// Create was called. It compares the generation with the last one for which the status reported that there is no
// instance. One change is expected: the provider ID.
func (s *instanceStep) changedSinceCreate() bool {
	observed := int64(1) // Before the first call of Create, nothing has to be written.
	if c := meta.FindStatusCondition(s.before.Status.Conditions, v1beta1.ConditionLaunched); c != nil {
		observed = c.ObservedGeneration
	}
	return s.machine.Generation > observed+1
}

// countFailedCheck counts a failed check of the instance, and returns the number of failures in a row.
func (s *instanceStep) countFailedCheck() (times int32) {
	s.states.update(s.machine, func(m *machineState) {
		m.instance.getFailures++
		times = m.instance.getFailures
	})
	return times
}

// check asks the provider whether the instance of an unhealthy Node still exists. It asks at the transition to
// unhealthy, again until the provider has answered, and repeatedly while the instance is being deleted. A process that
// starts while the Node is unhealthy asks once.
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
		if s.countsAsAbsent(ctx, inputs) {
			s.vanished() // The failure reason in the status prevents further checks.
		}
	case err != nil:
		s.lookupFailed(err)
	default:
		s.machine.Status.Instance.State = stateOf(s.machine.Status.Instance, instance)
		// A preempted instance is followed until it is gone. Its Node became unhealthy when the shutdown had just
		// begun.
		terminating := instance.State == provider.StateTerminating
		if terminating {
			s.requeueIn(s.pollInterval())
		}
		s.states.update(s.machine, func(m *machineState) { m.instance.checked, m.instance.getFailures = !terminating, 0 })
		s.noteShown()
	}
	return nil
}

// refresh adds to the status the facts about the instance that were unknown at its creation. The Machine can be used
// without these facts, so refresh tries only once: a Ready Node proves that the instance runs, whatever the provider
// reports. The exception is a provider that does not show the instance yet. Then refresh retries until the settle time
// has passed, because certificates need the addresses.
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
	s.machine.Status.Addresses = instance.AllAddresses()
	if instance.State != provider.StatePending {
		s.machine.Status.Instance.State = v1beta1.InstanceState(instance.State)
	}
}

// bootGrace is how long the status may still show an instance as pending after it was seen running. Most instances
// become Nodes within this time, and then one write covers both.
const bootGrace = time.Minute

// booted is the state of a running instance that is not in the status yet.
type booted struct {
	at        time.Time
	instance  v1beta1.InstanceStatus
	addresses []corev1.NodeAddress
}

// restoreBooted copies the booted instance, if any, to the status, and reports whether there was one.
func (s *instanceStep) restoreBooted() bool {
	seen := s.states.get(s.machine).instance.booted
	if seen == nil {
		return false
	}
	s.machine.Status.Instance, s.machine.Status.Addresses = seen.instance.DeepCopy(), seen.addresses
	return true
}

// onlyBooted reports whether the pass found out nothing except that the instance runs. This can be written together
// with the registration of its Node. Other controllers rely on the other fields of an instance, so those are never held
// back.
func (s *instanceStep) onlyBooted() bool {
	before, after := &s.before.Status, &s.machine.Status
	if before.Instance == nil || before.Instance.State != v1beta1.InstancePending ||
		after.Instance == nil || after.Instance.State != v1beta1.InstanceRunning {
		return false
	}
	rest := after.DeepCopy()
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
		m.instance.booted = &booted{at: at, instance: *after.Instance.DeepCopy(), addresses: after.Addresses}
	})
	s.requeueIn(left)
	return true
}

// replaced reports whether this is the instance that was replaced last, which the cloud still shows. After the settle
// time, the same ID means that the driver gave it to the new instance.
func (s *instanceStep) replaced(instance *provider.Instance) bool {
	launch := s.machine.Status.Launch
	return launch != nil && launch.OldProviderID != "" && launch.OldProviderID == instance.ProviderID &&
		s.now.Sub(s.launch.attemptBegan()) <= s.Cloud.CreateSettle()
}

// stateOf returns the state of an instance after a read. If a read that lags behind shows a running instance as
// pending, the state stays Running, because polling it again would gain nothing.
func stateOf(before *v1beta1.InstanceStatus, read *provider.Instance) v1beta1.InstanceState {
	if before != nil && before.State == v1beta1.InstanceRunning && read.State == provider.StatePending {
		return before.State
	}
	return v1beta1.InstanceState(read.State)
}
