package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/bootstrap"
	"machinist.dev/machinist/internal/machineclass/resolve"
	"machinist.dev/machinist/internal/preservation"
	"machinist.dev/machinist/pkg/provider"
)

// launch makes the instance, or follows the one that is there until it runs.
func (p *pass) launch(ctx context.Context) (progress, error) {
	if p.machine.Replacing() {
		return next, nil // The old instance goes first, and with it the attempt that made it.
	}
	if p.machine.Spec.ProviderID != "" {
		return p.followInstance(ctx)
	}
	if paused(p.machine) {
		return wait, nil
	}
	if preservation.Preserved(p.machine) {
		return wait, nil // It is preserved for inspection, and has no instance to inspect.
	}
	if refused := reservedKeys(p.machine); refused != "" {
		p.launchRefused(v1beta1.ReasonInvalidConfiguration, refused)
		return wait, nil
	}
	inputs, proceed, err := p.resolveInputs(ctx)
	if err != nil || !bool(proceed) {
		return wait, err
	}

	attempt := p.attempt()
	fingerprint := fingerprintOf(p.machine, inputs, attempt)
	if m := p.states.get(p.machine); m.launch.tried == fingerprint {
		if m.launch.notBefore.IsZero() {
			return wait, nil // Refused for good, and nothing has changed.
		}
		if left := m.launch.notBefore.Sub(p.now); left > 0 {
			if !p.refusedByProvider() {
				p.failAfterTimeout(nil)
			}
			p.requeueIn(left)
			return wait, nil
		}
	}

	if !p.Slots.Acquire(client.ObjectKeyFromObject(p.machine)) {
		return p.awaitSlot(), nil
	}
	p.states.update(p.machine, func(m *machineState) { m.launch.queuedSince = time.Time{} })

	ours, err := p.ours(ctx)
	if err != nil {
		return wait, err
	}
	// Nothing is created for a Machine that has meanwhile gone, is going, or has its instance: a token that the cloud has
	// forgotten would make a second one. The first creation for a Machine that no other process knows needs no such care.
	if !ours || !p.states.get(p.machine).launch.ambiguousAt.IsZero() {
		if err := p.confirm(ctx, "creating its instance"); err != nil {
			return wait, err
		}
	}
	if err := p.confirmClassProtection(ctx, inputs); err != nil {
		return wait, err
	}

	userData, proceed, err := p.renderUserData(ctx, inputs, attempt)
	if err != nil || !bool(proceed) {
		return wait, err
	}
	unsettled := p.states.get(p.machine).launch.ambiguousAt
	p.states.update(p.machine, func(m *machineState) { m.launch.ambiguousAt, m.launch.ownToken = p.now, ours })
	instance, err := p.Cloud.Create(ctx, provider.CreateRequest{
		Machine:   identity(p.machine),
		Class:     inputs.Class(),
		ClusterID: p.ClusterID,
		Token:     attempt.String(),
		Tags:      p.tags(attempt),
		UserData:  userData,
		Version:   p.machine.Spec.Version,
	})
	switch code := provider.CodeOf(err); {
	case err == nil, code.Ambiguous():
		// The call may have lasted longer than the cloud takes to settle, which counts from its end.
		p.states.update(p.machine, func(m *machineState) { m.launch.ambiguousAt = p.Clock.Now() })
	default:
		// It took no effect. One that was sent before it still may.
		p.states.update(p.machine, func(m *machineState) { m.launch.ambiguousAt = unsettled })
	}
	if provider.CodeOf(err) == provider.AlreadyExists {
		// The token was used with other parameters: user data changed between a Create whose answer was lost and this one.
		instance, err = p.findLaunched(ctx, inputs, attempt)
	}
	if err != nil {
		p.launchFailed(err, fingerprint)
		return wait, nil
	}
	if instance == nil {
		return wait, nil
	}
	return p.recordInstance(ctx, inputs, instance)
}

// recordInstance writes down which instance the Machine has: the provider ID at once, for from then on Create is not
// called again.
func (p *pass) recordInstance(ctx context.Context, inputs resolve.Resolved,
	instance *provider.Instance) (progress, error) {
	if instance.ProviderID == "" {
		p.launching("The provider accepted the instance and has not named it yet.")
		p.requeueIn(p.pollInterval())
		return wait, nil
	}
	if p.replaced(instance) {
		p.launching("The provider still shows the instance that was replaced.")
		p.requeueIn(p.pollInterval())
		return wait, nil
	}
	if !p.states.get(p.machine).launch.ambiguousAt.IsZero() {
		// Noted before it is written down: where only the answer to that is lost, the next pass finds the provider ID.
		p.states.noteCreated(p.machine, p.Clock.Now(), p.Cloud.CreateSettle())
	}
	if err := p.patchMachine(ctx, func(m *v1beta1.Machine) { m.Spec.ProviderID = instance.ProviderID }); err != nil {
		return wait, err
	}
	p.states.update(p.machine, func(m *machineState) {
		*m = machineState{launch: launchState{ownToken: m.launch.ownToken, token: m.launch.token}}
	})
	p.launched(inputs, instance)
	return next, nil
}

// followInstance keeps what is known of a recorded instance true until it runs.
func (p *pass) followInstance(ctx context.Context) (progress, error) {
	if bornWithInstance(p.machine) {
		return p.adopt(ctx)
	}
	status := p.machine.Status.Instance
	known := p.isTrue(v1beta1.ConditionLaunched) && status != nil
	if known {
		if gone, err := p.checkSuspect(ctx); gone || err != nil {
			return wait, err
		}
	}
	if known && status.State != v1beta1.InstancePending {
		return next, nil
	}
	if known && p.machine.Status.NodeRef != nil {
		return next, nil // Its Node says more than the provider could.
	}
	if known && p.restoreBooted() {
		return next, nil
	}
	inputs, err := p.Classes.ResolveForDeletion(ctx, p.machine)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		p.requeueIn(secretBackstop)
		if !known {
			p.launchRefused(missing.Reason, missing.Message)
		}
		return progress(known), nil
	}
	if err != nil {
		return wait, fmt.Errorf("resolve the machine's class: %w", err)
	}
	instance, err := p.getInstance(ctx, inputs)
	switch {
	case provider.IsNotFound(err):
		return p.followAbsent(known), nil
	case err != nil && p.machine.Status.FailureReason == v1beta1.FailureInstanceVanished:
		return wait, nil // What the provider said of it before holds.
	case err != nil:
		reason := p.lookupFailed(err)
		if !known {
			// Only the status was lost, by a crash right after the provider ID was written.
			p.trying(reason, messageOf(err))
			p.failAfterTimeout(err)
		}
		// Otherwise it goes on following the instance: the Node may still come.
		return progress(known), nil
	case undescribed(p.machine) && instance.OwnedBy(p.ClusterID, identity(p.machine)) != nil && p.showsWithin() > 0:
		// The tags of the Machine's instance may not show yet. The Machine would refuse its own instance for good.
		p.launching("Waiting until the provider would show the instance's tags.")
		p.requeueIn(min(p.showsWithin(), p.pollInterval()))
		return wait, nil
	case undescribed(p.machine) && instance.OwnedBy(p.ClusterID, identity(p.machine)) != nil:
		return p.adopt(ctx)
	}
	p.states.update(p.machine, func(m *machineState) { m.instance.getFailures = 0 })
	p.shown()
	p.launched(inputs, instance)
	return next, nil
}

// lookupFailed asks for another lookup after an error that says nothing of the instance, and returns the reason to
// show.
func (p *pass) lookupFailed(err error) (reason string) {
	p.shown() // A read that failed is not the second of two.
	c := lookupRetryPolicy(provider.CodeOf(err))
	p.requeueIn(c.backoff(p.countFailedCheck(), provider.RetryAfter(err), string(p.machine.UID)))
	return c.reason
}

// tags are what every instance of the Machine carries.
func (p *pass) tags(attempt bootstrap.Attempt) map[string]string {
	return map[string]string{
		provider.TagCluster:    p.ClusterID,
		provider.TagMachineUID: string(p.machine.UID),
		provider.TagMachine:    attempt.Machine.String(),
	}
}

// pollInterval is how often a pending instance is read.
func (p *pass) pollInterval() time.Duration { return pollInterval(p.now.Sub(p.began())) }

// pollInterval is how often an operation at the provider is polled: often at first, because most end
// quickly.
func pollInterval(age time.Duration) time.Duration {
	return min(max(age/4, time.Second), 30*time.Second)
}

func (p *pass) getInstance(ctx context.Context, inputs resolve.Resolved) (*provider.Instance, error) {
	req := provider.GetRequest{Machine: identity(p.machine), Class: inputs.Class(), ClusterID: p.ClusterID,
		ProviderID: p.machine.Spec.ProviderID}
	if p.machine.Status.Instance != nil {
		req.Scope = p.machine.Status.Instance.Scope
	}
	return p.Cloud.Get(ctx, req)
}

// launched records a success.
func (p *pass) launched(inputs resolve.Resolved, instance *provider.Instance) {
	m := p.machine
	m.Status.Instance = &v1beta1.InstanceStatus{
		State:          stateOf(m.Status.Instance, instance),
		Type:           instance.Type,
		Region:         instance.Region,
		Zone:           instance.Zone,
		NodeName:       instance.NodeName,
		Provider:       p.Cloud.Name(),
		CredentialsRef: inputs.CredentialsRef,
		Scope:          instance.Scope,
	}
	if !instance.LaunchTime.IsZero() {
		// As it is stored, or it would look changed at every look.
		m.Status.Instance.LaunchTime = &metav1.Time{Time: instance.LaunchTime.Truncate(time.Second)}
	}
	m.Status.Addresses = instance.Addresses
	if m.Status.NodeRef == nil && m.Status.Phase == v1beta1.MachineUpdating {
		m.Status.Phase = v1beta1.MachineProvisioned // A new instance has yet to become a Node.
	}
	if m.Status.Applied == nil {
		m.Status.Applied = &v1beta1.AppliedStatus{ClassName: inputs.ClassName, ProviderSpecHash: inputs.SpecHash(),
			Version: m.Spec.Version}
	}
	if p.setCondition(v1beta1.ConditionLaunched, true, launchReason(m), "") {
		p.operation(v1beta1.OperationCreate, v1beta1.OperationProcessing, "The instance exists; waiting for its node.", "")
	}
	if m.Adopting() {
		m.Status.Launch = nil
	}
	switch instance.State {
	case provider.StatePending:
		p.requeueIn(p.pollInterval())
	case provider.StateFailed:
		p.fail(v1beta1.FailureCreateError, "The provider gave up on the instance: "+instance.StateMessage)
	}
}

// launching says that an instance was asked for and is not there yet.
func (p *pass) launching(message string) {
	p.trying(v1beta1.ReasonProvisioning, message)
	p.failAfterTimeout(nil)
}

// preparing says what is done before the next Create. If the provider refused the last one, that stays the reason
// until the next one has another answer: the owner would count the machine as one that is coming up, and there would
// be an event for each try.
func (p *pass) preparing(message string) {
	if !p.refusedByProvider() {
		p.launching(message)
	}
}

// refusedByProvider reports whether the provider refused the configuration when it was last asked to create the
// instance.
func (p *pass) refusedByProvider() bool {
	launched, last := meta.FindStatusCondition(p.machine.Status.Conditions,
		v1beta1.ConditionLaunched), p.machine.Status.LastOperation
	return launched != nil && launched.Status == metav1.ConditionFalse &&
		launched.Reason == v1beta1.ReasonInvalidConfiguration &&
		last != nil && last.Type == v1beta1.OperationCreate && last.Code != ""
}

// trying says why there is no instance yet although one is wanted. Where the launch was refused before, its time begins
// only now.
func (p *pass) trying(reason, message string) (transition bool) {
	launched := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionLaunched)
	if launched != nil && launched.Status != metav1.ConditionTrue && !isTrying(launched.Reason) && isTrying(reason) {
		dropCondition(&p.machine.Status.Conditions, v1beta1.ConditionLaunched)
	}
	return p.setCondition(v1beta1.ConditionLaunched, false, reason, message)
}

// isTrying reports whether the reason of Launched is one of a launch under way, not of one that was refused.
func isTrying(reason string) bool {
	switch reason {
	case v1beta1.ReasonProvisioning, v1beta1.ReasonInsufficientResources, v1beta1.ReasonProviderUnavailable,
		v1beta1.ReasonCreateFailed, v1beta1.ReasonCredentialsRefused:
		return true
	}
	return false
}

// began is when the time in which the Machine must become a Node began: with the Machine, or with the last transition
// of Launched. One that waited for its class, or was paused, has all of its time when that is over.
func (p *pass) began() time.Time {
	began := p.machine.CreationTimestamp.Time
	launched := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionLaunched)
	if launched != nil && launched.LastTransitionTime.After(began) {
		began = launched.LastTransitionTime.Time
	}
	return began
}

// launchRefused says that nothing is tried until something changes. It is not a failure of the machine: replacing it
// would only make another one that is refused.
func (p *pass) launchRefused(reason, message string) {
	if p.setCondition(v1beta1.ConditionLaunched, false, reason, message) {
		p.warn(reason, "Launch", message)
	}
	p.operation(v1beta1.OperationCreate, v1beta1.OperationFailed, message, "")
}

// launchFailed records an error of Create and when the next try is due.
func (p *pass) launchFailed(err error, fingerprint string) {
	c := createRetryPolicy(provider.CodeOf(err))
	message := messageOf(err)
	if p.trying(c.reason, message) {
		p.warn(c.reason, "Launch", message)
	}
	p.operationFailed(v1beta1.OperationCreate, c, err, fingerprint)
	if !c.isRejection() {
		p.failAfterTimeout(err)
	}
}

// operationFailed records a failed call, how many there were in a row and when the next one is due.
func (p *pass) operationFailed(kind v1beta1.OperationType, c retryPolicy, err error, fingerprint string) {
	failures, state := oneMore(p.failuresOf(kind)), v1beta1.OperationProcessing
	if c.isRejection() {
		state = v1beta1.OperationFailed
	}
	p.operation(kind, state, messageOf(err), provider.CodeOf(err))
	last, retry := p.machine.Status.LastOperation, time.Time{}
	last.Attempts, last.NextTryTime = failures, nil
	if !c.terminal() {
		d := c.backoff(failures, provider.RetryAfter(err), string(p.machine.UID))
		retry = p.now.Add(d)
		last.NextTryTime = &metav1.Time{Time: retry}
		p.requeueIn(d)
	}
	p.states.update(p.machine, func(m *machineState) { m.launch.tried, m.launch.notBefore = fingerprint, retry })
}

func identity(m *v1beta1.Machine) provider.Machine {
	return provider.Machine{Namespace: m.Namespace, Name: m.Name, UID: m.UID}
}

// messageOf returns the part of a driver's error that users see.
func messageOf(err error) string {
	if e, ok := errors.AsType[*provider.Error](err); ok {
		return bounded(e.Error(), 1024)
	}
	return bounded(err.Error(), 1024)
}
