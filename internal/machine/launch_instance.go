package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

// followInstance reads the instance until it runs. The result tagged is false if the instance is not recorded and does
// not have the Machine's tags, so that the Machine has to adopt it.
func (p *pass) followInstance(ctx context.Context) (proceed progress, tagged bool, err error) {
	status := p.machine.Status.Instance
	known := p.isTrue(v1beta1.ConditionLaunched) && status != nil
	if known {
		if gone, err := p.checkSuspect(ctx); gone || err != nil {
			return onMachine, true, err // The owner replaces the Machine.
		}
	}
	switch {
	case !known:
	case status.State != v1beta1.InstancePending && status.State != "" && !p.failurePending(),
		p.machine.Status.NodeRef != nil, // A Node is better evidence than the provider's answer.
		p.restoreBooted():
		return next, true, nil
	}
	inputs, err := p.Classes.ResolveForDeletion(ctx, p.machine)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		if !known {
			p.reportRefused(missing.Reason, missing.Message)
		}
		return (onInputs | p.after(secretBackstop)).unless(known), true, nil
	}
	if err != nil {
		return onError, true, fmt.Errorf("resolve the machine's class: %w", err)
	}
	instance, err := p.getInstance(ctx, inputs)
	switch {
	case provider.CreateCodeOf(err) != "" && p.machine.CreateHandle() != "":
		p.failedInstance = &provider.Instance{State: provider.StateFailed, StateCode: provider.CreateCodeOf(err),
			StateMessage: messageOf(err)}
		return next, true, nil
	case provider.IsNotFound(err):
		return p.followAbsent(ctx, inputs, known), true, nil
	case err != nil && p.machine.Status.FailureReason == v1beta1.FailureInstanceVanished:
		return onMachine, true, nil // The provider has already reported that the instance is gone.
	case err != nil:
		reason := p.lookupFailed(err)
		if !known {
			// The provider ID was written, but the process crashed before it wrote the status.
			p.reportNotLaunched(reason, messageOf(err))
			p.failAfterTimeout(err)
		}
		// If the instance is known, the pass continues, because the Node may still register.
		return atTime.unless(known), true, nil
	case instanceUnrecorded(p.machine) && instance.OwnedBy(p.ClusterID, identity(p.machine)) != nil && p.showsWithin() > 0:
		// The cloud may not show the tags of the Machine's own instance yet. Without this wait, the Machine would refuse its
		// own instance permanently.
		p.reportLaunching("Waiting for the settle time to pass, " +
			"because the tags of a new instance may appear late.")
		return p.after(min(p.showsWithin(), p.pollInterval())), true, nil
	case instanceUnrecorded(p.machine) && instance.OwnedBy(p.ClusterID, identity(p.machine)) != nil:
		return next, false, nil
	}
	p.states.update(p.machine, func(m *machineState) { m.instance.getFailures = 0 })
	p.noteShown()
	p.recordLaunched(inputs, instance, false)
	return next, true, nil
}

// lookupFailed schedules another lookup after an error that does not show whether the instance exists. It returns the
// reason to report.
func (p *pass) lookupFailed(err error) (reason string) {
	p.noteShown() // A failed read does not confirm an earlier NotFound.
	c := lookupRetryPolicy(provider.CodeOf(err))
	p.requeueIn(c.backoff(p.countFailedCheck(), provider.RetryAfter(err), string(p.machine.UID)))
	return c.reason
}

func (p *pass) pollInterval() time.Duration {
	return pollInterval(p.now.Sub(attemptStart(p.machine)))
}

// pollInterval returns the time between two polls of an operation in the cloud. The time is short at first, because
// most operations end soon.
func pollInterval(age time.Duration) time.Duration {
	return min(max(age/4, time.Second), 30*time.Second)
}

func (p *pass) getInstance(ctx context.Context, inputs resolve.Inputs) (*provider.Instance, error) {
	req := provider.GetRequest{Machine: identity(p.machine), Class: inputs.Class(), ClusterID: p.ClusterID,
		ProviderID: p.machine.Spec.ProviderID, Scope: scopeOf(p.machine), CreateHandle: p.machine.CreateHandle()}
	return p.Cloud.Get(ctx, req)
}

func scopeOf(m *v1beta1.Machine) string {
	if status := m.Status.Instance; status != nil {
		return status.Scope
	}
	return ""
}

// readAddresses reads the addresses of an instance that had none when it was first seen running. Some networks assign
// addresses only while the instance boots. One read is enough when the Node has registered, because its kubelet needed
// an address.
func (p *pass) readAddresses(ctx context.Context) {
	if p.machine.Status.Instance == nil || hasIP(p.machine.Status.Addresses) {
		return
	}
	inputs, err := p.Classes.ResolveForDeletion(ctx, p.machine)
	if err != nil {
		return
	}
	instance, err := p.getInstance(ctx, inputs)
	if err == nil && hasIP(instance.AllAddresses()) && instance.OwnedBy(p.ClusterID, identity(p.machine)) == nil {
		p.machine.Status.Addresses = instance.AllAddresses()
	}
}

func hasIP(addresses []corev1.NodeAddress) bool {
	return slices.ContainsFunc(addresses, func(a corev1.NodeAddress) bool {
		return a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP
	})
}

// recordLaunched records an instance of the Machine in the status. The argument created is true if this pass has
// created the instance.
func (p *pass) recordLaunched(inputs resolve.Inputs, instance *provider.Instance, created bool) {
	m := p.machine
	if instance.OwnedBy(p.ClusterID, identity(m)) == nil {
		p.states.update(m, func(s *machineState) { s.instance.confirmedID = instance.ProviderID })
	}
	userDataHash, nodeID, account := "", "", provider.AccountOf(p.Cloud, inputs.Class())
	bootDataRemoved := false
	if known := m.Status.Instance; known != nil {
		userDataHash, nodeID, account = known.UserDataHash, known.NodeProviderID, cmp.Or(account, known.Account)
		bootDataRemoved = known.BootDataRemoved
	} else {
		nodeID = NodeProviderID(inputs.NodeProviderID, instance)
		if created {
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
		Provider:       p.Cloud.Name(),
		CredentialsRef: inputs.CredentialsRef,
		Scope:          instance.Scope,

		BootDataRemoved: bootDataRemoved,
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
		m.Status.Applied = p.createdFrom(inputs, created)
	}
	failures := failuresOf(p.machine, v1beta1.OperationCreate)
	if p.setCondition(v1beta1.ConditionLaunched, true, launchReason(m), "") {
		p.operation(v1beta1.OperationCreate, v1beta1.OperationProcessing, "The instance exists. Waiting for its node.", "")
		if lacksCapacity(m) {
			m.Status.LastOperation.Attempts = failures // A cloud may accept an instance without having capacity for it.
		}
	}
	if m.IsAdopting() {
		m.Status.Launch = nil
	}
	p.recordCreateHandle(instance)
	switch instance.State {
	case provider.StatePending:
		p.requeueIn(p.pollInterval())
	case provider.StateFailed:
		p.failedInstance = instance
	case provider.StateRunning:
		foundCapacity(p.machine)
	}
}

// recordCreateHandle records the operation that creates the instance, and forgets it when the instance is created.
func (p *pass) recordCreateHandle(instance *provider.Instance) {
	handle := ""
	if p.machine.Status.Instance.State == v1beta1.InstancePending {
		handle = cmp.Or(instance.CreateHandle, p.machine.CreateHandle())
	}
	if handle != p.machine.CreateHandle() {
		p.setCreateHandle(handle)
	}
}

func (p *pass) setCreateHandle(handle string) {
	m := p.machine
	launch := v1beta1.LaunchStatus{Attempt: m.LaunchAttempt()}
	if m.Status.Launch != nil {
		launch = *m.Status.Launch
	}
	launch.CreateHandle = handle
	m.Status.Launch = &launch
}

// createdFrom returns the configuration with which the instance was created. The result is empty if another pass called
// Create and the spec may have changed since then. An empty configuration never equals a spec, so the instance is
// updated.
func (p *pass) createdFrom(inputs resolve.Inputs, created bool) *v1beta1.AppliedStatus {
	if created || launchReason(p.machine) == v1beta1.ReasonInstanceAdopted || !p.changedSinceCreate() {
		return appliedOf(p.machine, inputs)
	}
	return &v1beta1.AppliedStatus{}
}

// changedSinceCreate reports whether the spec may have changed since Create was called. changedSinceCreate compares
// the generation with the generation for which the status last reported that there is no instance. One change is
// ignored: the write of the provider ID.
func (p *pass) changedSinceCreate() bool {
	observed := int64(1) // Nothing has to be written before the first call of Create.
	if c := meta.FindStatusCondition(p.original.Status.Conditions, v1beta1.ConditionLaunched); c != nil {
		observed = c.ObservedGeneration
	}
	return p.machine.Generation > observed+1
}

func (p *pass) countFailedCheck() (times int32) {
	p.states.update(p.machine, func(m *machineState) {
		m.instance.getFailures++
		times = m.instance.getFailures
	})
	return times
}

// confirmInstance asks the provider whether the instance of an unhealthy Node still exists. The provider is asked when
// the Node becomes unhealthy, and again until it answers. While the instance is being deleted, the provider is polled.
// A process that starts while the Node is unhealthy asks once. The result undecided is true if the cloud does not show
// the instance, but the instance may still exist.
func (p *pass) confirmInstance(ctx context.Context, transition bool) (undecided bool, err error) {
	if known := p.states.get(p.machine); known.instance.isConfirmed && !transition ||
		p.machine.Status.FailureReason == v1beta1.FailureInstanceVanished {
		return false, nil
	}
	inputs, err := p.Classes.ResolveForDeletion(ctx, p.machine)
	if err != nil {
		return false, fmt.Errorf("resolve the machine's class: %w", err)
	}
	instance, err := p.getInstance(ctx, inputs)
	switch {
	case provider.IsNotFound(err):
		if undecided = !p.countsAsAbsent(ctx, inputs); !undecided {
			p.recordVanished() // The failure reason in the status prevents further checks.
		}
	case err != nil:
		p.lookupFailed(err)
	default:
		p.machine.Status.Instance.State = stateOf(p.machine.Status.Instance, instance)
		p.recordCreateHandle(instance)
		// If the instance is being shut down, it is read again until it is gone. The Node of the instance became
		// unhealthy at the beginning of the shutdown.
		terminating := instance.State == provider.StateTerminating
		if terminating {
			p.requeueIn(p.pollInterval())
		}
		p.states.update(p.machine, func(m *machineState) { m.instance.isConfirmed, m.instance.getFailures = !terminating, 0 })
		p.noteShown()
	}
	return undecided, nil
}

// refreshInstance reads data of the instance that was unknown at its creation. The Machine can be used without this
// data, so it reads only once. A Ready Node proves that the instance runs, whatever the provider reports. If the
// provider does not show the instance yet, refresh retries until the settle time has passed. The certificates of the
// Node need the addresses.
func (p *pass) refreshInstance(ctx context.Context) {
	p.machine.Status.Instance.State = v1beta1.InstanceRunning
	p.recordCreateHandle(&provider.Instance{})
	inputs, err := p.Classes.ResolveForDeletion(ctx, p.machine)
	if err != nil {
		return
	}
	instance, err := p.getInstance(ctx, inputs)
	left := p.showsWithin()
	incomplete := provider.IsNotFound(err) && left > 0
	p.states.update(p.machine, func(m *machineState) { m.instance.isUnseen = incomplete })
	if incomplete {
		p.requeueIn(min(left, p.pollInterval()))
	}
	if err != nil {
		return
	}
	p.machine.Status.Addresses = instance.AllAddresses()
	if instance.State != provider.StatePending {
		p.machine.Status.Instance.State = v1beta1.InstanceState(instance.State)
	}
}

// bootGrace is how long the status may show a running instance as pending. Most instances become Nodes within this
// time, so that one write can record both the running instance and the Node.
const bootGrace = time.Minute

// booted is the state of a running instance that is still pending in the status.
type booted struct {
	at        time.Time
	instance  v1beta1.InstanceStatus
	addresses []corev1.NodeAddress
}

func (p *pass) restoreBooted() bool {
	seen := p.states.get(p.machine).instance.booted
	if seen == nil {
		return false
	}
	p.machine.Status.Instance, p.machine.Status.Addresses = seen.instance.DeepCopy(), seen.addresses
	return true
}

// onlyBooted reports whether the pass has found nothing new except that the instance runs. The registration of the Node
// can then be written together with this change. Changes of other fields are never delayed, because other controllers
// need them.
func (p *pass) onlyBooted() bool {
	before, after := &p.original.Status, &p.machine.Status
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
	at := p.now
	if seen := p.states.get(p.machine).instance.booted; seen != nil {
		at = seen.at
	}
	left := at.Add(bootGrace).Sub(p.now)
	if left <= 0 {
		return false
	}
	p.states.update(p.machine, func(m *machineState) {
		m.instance.booted = &booted{at: at, instance: *after.Instance.DeepCopy(), addresses: after.Addresses}
	})
	p.requeueIn(left)
	return true
}

// isOldInstance reports whether the instance is the last replaced one, which the cloud may still show. After the settle
// time, it is a new instance to which the driver has assigned the same ID.
func (p *pass) isOldInstance(instance *provider.Instance) bool {
	launch := p.machine.Status.Launch
	return launch != nil && launch.OldProviderID != "" && launch.OldProviderID == instance.ProviderID &&
		p.now.Sub(attemptStart(p.machine)) <= p.Cloud.CreateSettle()
}

// stateOf returns the state of an instance after a read. An outdated read may show a running instance as pending. The
// state then stays Running, so that the instance is not polled again.
func stateOf(before *v1beta1.InstanceStatus, read *provider.Instance) v1beta1.InstanceState {
	if before != nil && before.State == v1beta1.InstanceRunning && read.State == provider.StatePending {
		return before.State
	}
	return v1beta1.InstanceState(read.State)
}

// These placeholders can be used in spec.nodeProviderID of a class.
const (
	placeholderNodeName   = "<<NODE_NAME>>"
	PlaceholderInstanceID = "<<INSTANCE_ID>>"
	placeholderRegion     = "<<REGION>>"
)

// NodeProviderID returns the provider ID of the Node of an instance. The class defines the form of this ID. The
// result is "" if the Node has the instance's own ID. The Node has this ID if the class defines no form, or if the
// provider does not report a value that the form contains.
func NodeProviderID(form string, in *provider.Instance) string {
	values := []string{placeholderNodeName, in.NodeName,
		PlaceholderInstanceID, in.ProviderID[strings.LastIndex(in.ProviderID, "/")+1:], placeholderRegion, in.Region}
	for i := 0; i < len(values); i += 2 {
		if values[i+1] == "" && strings.Contains(form, values[i]) {
			return ""
		}
	}
	id := strings.NewReplacer(values...).Replace(form)
	if id == in.ProviderID {
		return ""
	}
	return id
}
