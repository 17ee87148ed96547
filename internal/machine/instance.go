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

type instanceStep struct {
	*pass
	// undecided is true if the cloud does not show the instance, but the instance may still exist.
	undecided bool
	// failed is the instance that this pass has read, if the provider reports that the instance failed.
	failed *provider.Instance
}

func (s *instanceStep) followInstance(ctx context.Context) (progress, error) {
	if createdWithProviderID(s.machine) {
		return s.adoption.run(ctx)
	}
	status := s.machine.Status.Instance
	known := s.isTrue(v1beta1.ConditionLaunched) && status != nil
	if known {
		if gone, err := s.checkSuspect(ctx); gone || err != nil {
			return onMachine, err // The owner replaces the Machine.
		}
	}
	if known && status.State != v1beta1.InstancePending && !s.failurePending() {
		return next, nil
	}
	if known && s.machine.Status.NodeRef != nil {
		return next, nil // A Node is better evidence than the provider's answer.
	}
	if known && s.restoreBooted() {
		return next, nil
	}
	inputs, err := s.Classes.ResolveForDeletion(ctx, s.machine)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		if !known {
			s.launch.reportRefused(missing.Reason, missing.Message)
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
		return onMachine, nil // The provider has already reported that the instance is gone.
	case err != nil:
		reason := s.lookupFailed(err)
		if !known {
			// The provider ID was written, but the process crashed before it wrote the status.
			s.launch.reportNotLaunched(reason, messageOf(err))
			s.failAfterTimeout(err)
		}
		// If the instance is known, the pass continues, because the Node may still register.
		return atTime.unless(known), nil
	case instanceUnrecorded(s.machine) && instance.OwnedBy(s.ClusterID, identity(s.machine)) != nil && s.showsWithin() > 0:
		// The cloud may not show the tags of the Machine's own instance yet. Without this wait, the Machine would refuse its
		// own instance permanently.
		s.launch.reportLaunching("Waiting for the settle time to pass, " +
			"because the tags of a new instance may appear late.")
		return s.after(min(s.showsWithin(), s.pollInterval())), nil
	case instanceUnrecorded(s.machine) && instance.OwnedBy(s.ClusterID, identity(s.machine)) != nil:
		return s.adoption.run(ctx)
	}
	s.states.update(s.machine, func(m *machineState) { m.instance.getFailures = 0 })
	s.noteShown()
	s.recordLaunched(inputs, instance)
	return next, nil
}

// lookupFailed schedules another lookup after an error that does not show whether the instance exists. It returns the
// reason to report.
func (s *instanceStep) lookupFailed(err error) (reason string) {
	s.noteShown() // A failed read does not count as the second of two reads.
	c := lookupRetryPolicy(provider.CodeOf(err))
	s.requeueIn(c.backoff(s.countFailedCheck(), provider.RetryAfter(err), string(s.machine.UID)))
	return c.reason
}

func (s *instanceStep) pollInterval() time.Duration {
	return pollInterval(s.now.Sub(s.launch.attemptStart()))
}

// pollInterval returns the time between two polls of an operation in the cloud. The time is short at first, because
// most operations end soon.
func pollInterval(age time.Duration) time.Duration {
	return min(max(age/4, time.Second), 30*time.Second)
}

func (s *instanceStep) get(ctx context.Context, inputs resolve.Resolved) (*provider.Instance, error) {
	req := provider.GetRequest{Machine: identity(s.machine), Class: inputs.Class(), ClusterID: s.ClusterID,
		ProviderID: s.machine.Spec.ProviderID}
	req.Scope = s.scope()
	return s.Cloud.Get(ctx, req)
}

func (p *pass) scope() string {
	if status := p.machine.Status.Instance; status != nil {
		return status.Scope
	}
	return ""
}

// readAddresses reads the addresses of an instance that had none when it was first seen running. Some networks assign
// addresses only while the instance boots. One read is enough when the Node has registered, because its kubelet needed
// an address.
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

func hasIP(addresses []corev1.NodeAddress) bool {
	return slices.ContainsFunc(addresses, func(a corev1.NodeAddress) bool {
		return a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP
	})
}

func (s *instanceStep) recordLaunched(inputs resolve.Resolved, instance *provider.Instance) {
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
		// The API server truncates the time too. Otherwise, the status would seem to change with every read.
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
			m.Status.LastOperation.Attempts = failures // A cloud may accept an instance without having capacity for it.
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

// createdFrom returns the configuration with which the instance was created. The result is empty if another pass called
// Create and the spec may have changed since then. An empty configuration never equals a spec, so the instance is
// updated.
func (s *instanceStep) createdFrom(inputs resolve.Resolved) *v1beta1.AppliedStatus {
	if s.launch.created || launchReason(s.machine) == v1beta1.ReasonInstanceAdopted || !s.changedSinceCreate() {
		return appliedOf(s.machine, inputs)
	}
	return &v1beta1.AppliedStatus{}
}

// changedSinceCreate reports whether the spec may have changed since Create was called. It compares the generation with
// the generation for which the status last reported that there is no instance. One change is ignored: the write of the
// provider ID.
func (s *instanceStep) changedSinceCreate() bool {
	observed := int64(1) // Nothing has to be written before the first call of Create.
	if c := meta.FindStatusCondition(s.before.Status.Conditions, v1beta1.ConditionLaunched); c != nil {
		observed = c.ObservedGeneration
	}
	return s.machine.Generation > observed+1
}

func (s *instanceStep) countFailedCheck() (times int32) {
	s.states.update(s.machine, func(m *machineState) {
		m.instance.getFailures++
		times = m.instance.getFailures
	})
	return times
}

// check asks the provider whether the instance of an unhealthy Node still exists. The provider is asked when the Node
// becomes unhealthy, and again until it answers. While the instance is being deleted, the provider is polled. A process
// that starts while the Node is unhealthy asks once.
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
			s.recordVanished() // The failure reason in the status prevents further checks.
		}
	case err != nil:
		s.lookupFailed(err)
	default:
		s.machine.Status.Instance.State = stateOf(s.machine.Status.Instance, instance)
		// If the instance is being shut down, it is read again until it is gone. Its Node became unhealthy at the beginning
		// of the shutdown.
		terminating := instance.State == provider.StateTerminating
		if terminating {
			s.requeueIn(s.pollInterval())
		}
		s.states.update(s.machine, func(m *machineState) { m.instance.checked, m.instance.getFailures = !terminating, 0 })
		s.noteShown()
	}
	return nil
}

// refresh reads data of the instance that was unknown at its creation. The Machine can be used without this data, so
// refresh reads only once. A Ready Node proves that the instance runs, whatever the provider reports. If the provider
// does not show the instance yet, refresh retries until the settle time has passed. The certificates of the Node need
// the addresses.
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

// bootGrace is how long the status may show a running instance as pending. Most instances become Nodes within this
// time, so that one write can record both changes.
const bootGrace = time.Minute

// booted is the state of a running instance that is still pending in the status.
type booted struct {
	at        time.Time
	instance  v1beta1.InstanceStatus
	addresses []corev1.NodeAddress
}

func (s *instanceStep) restoreBooted() bool {
	seen := s.states.get(s.machine).instance.booted
	if seen == nil {
		return false
	}
	s.machine.Status.Instance, s.machine.Status.Addresses = seen.instance.DeepCopy(), seen.addresses
	return true
}

// onlyBooted reports whether the pass has found nothing new except that the instance runs. The registration of the Node
// can then be written together with this change. Changes of other fields are never delayed, because other controllers
// need them.
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

// isOldInstance reports whether the instance is the last replaced one, which the cloud may still show. After the settle
// time, it is a new instance to which the driver has assigned the same ID.
func (s *instanceStep) isOldInstance(instance *provider.Instance) bool {
	launch := s.machine.Status.Launch
	return launch != nil && launch.OldProviderID != "" && launch.OldProviderID == instance.ProviderID &&
		s.now.Sub(s.launch.attemptStart()) <= s.Cloud.CreateSettle()
}

// stateOf returns the state of an instance after a read. An outdated read may show a running instance as pending. The
// state then stays Running, so that the instance is not polled again.
func stateOf(before *v1beta1.InstanceStatus, read *provider.Instance) v1beta1.InstanceState {
	if before != nil && before.State == v1beta1.InstanceRunning && read.State == provider.StatePending {
		return before.State
	}
	return v1beta1.InstanceState(read.State)
}
