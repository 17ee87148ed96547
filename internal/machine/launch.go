package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/machine/preservation"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/pkg/provider"
)

// launchStep makes the instance of a Machine that has none.
type launchStep struct {
	*pass
	// queued is true when the Machine waits for a slot among the creations under way, and silent when that is not worth a
	// write yet.
	queued, silent bool
	// created is true when this pass has asked for the instance, and the provider has named it.
	created bool
}

// run makes the instance, or follows the one that is there until it runs.
func (s *launchStep) run(ctx context.Context) (progress, error) {
	if s.machine.Replacing() {
		return next, nil // The old instance goes first, and with it the attempt that made it.
	}
	if s.machine.Retrying() {
		return s.discard(ctx)
	}
	if s.machine.Spec.ProviderID != "" {
		return s.instance.follow(ctx)
	}
	if proceed, err := s.releaseClass(ctx); err != nil || proceed != next {
		return proceed, err
	}
	if machinestate.Paused(s.machine) {
		return onMachine, nil
	}
	if preservation.Preserved(s.machine) {
		return onMachine, nil // It is preserved for inspection, and has no instance to inspect.
	}
	if refused := reservedKeys(s.machine); refused != "" {
		s.refused(v1beta1.ReasonInvalidConfiguration, refused)
		return onMachine, nil
	}
	if left := s.replacedBefore(); left > 0 {
		s.failAfterTimeout(nil)
		return s.after(left), nil
	}
	// What the Machine is made from is read when it has its slot: each of a thousand that wait would read its Secrets
	// again and again. One whose last try failed needs no slot as long as nothing changes, which only the inputs show.
	tried := s.states.get(s.machine).pace
	if tried.tried == "" && tried.notBefore.IsZero() && !s.acquireSlot() {
		return s.awaitSlot(), nil
	}
	inputs, proceed, err := s.resolveInputs(ctx)
	if err != nil || proceed != next {
		return proceed, err
	}

	attempt := s.attempt()
	fingerprint := fingerprintOf(s.machine, inputs, attempt)
	if tried.tried == "" && !tried.notBefore.IsZero() {
		// The instance of the attempt before failed: from now on a change of what this one is made from ends the wait.
		tried.tried = fingerprint
		s.states.update(s.machine, func(m *machineState) { m.pace.tried = fingerprint })
	}
	switch left, never := tried.left(fingerprint, s.now); {
	case never:
		return onInputs, nil // Refused for good, and nothing has changed.
	case left > 0:
		if !s.refusedByProvider() {
			s.failAfterTimeout(nil)
		}
		return onInputs | s.after(left), nil
	}
	if !s.acquireSlot() {
		return s.awaitSlot(), nil
	}
	s.states.update(s.machine, func(m *machineState) { m.launch.queuedSince = time.Time{} }) // It waits for nothing else.

	ours, err := s.ours(ctx)
	if err != nil {
		return onError, err
	}
	// Nothing is created for a Machine that has meanwhile gone, is going, or has its instance: a token that the cloud has
	// forgotten would make a second one. The first creation for a Machine that no other process knows needs no such care.
	if !ours || !s.states.get(s.machine).launch.ambiguousAt.IsZero() {
		if err := s.confirm(ctx, "creating its instance"); err != nil {
			return onError, err
		}
	}
	if err := s.confirmClassProtection(ctx, inputs); err != nil {
		return onError, err
	}

	userData, proceed, err := s.renderUserData(ctx, inputs, attempt)
	if err != nil || proceed != next {
		return proceed, err
	}
	unsettled := s.states.get(s.machine).launch.ambiguousAt
	refusedSoFar := refusedLaunch(s.machine) || ours && unsettled.IsZero()
	if err := s.takeRefusedBack(ctx); err != nil {
		return onError, err
	}
	s.states.update(s.machine, func(m *machineState) {
		m.launch.ambiguousAt, m.launch.ownToken, m.teardown.found = s.now, ours, nil
	})
	instance, err := s.Cloud.Create(ctx, provider.CreateRequest{
		Machine:   identity(s.machine),
		Class:     inputs.Class(),
		ClusterID: s.ClusterID,
		Token:     attempt.String(),
		Tags:      s.tags(attempt),
		UserData:  userData,
		Version:   s.machine.Spec.Version,
	})
	s.now = s.Clock.Now() // Conditions that follow from the call must not be older than it.
	switch code := provider.CodeOf(err); {
	case err == nil, code.Ambiguous():
		// The call may have lasted longer than the cloud takes to settle, which counts from its end.
		s.states.update(s.machine, func(m *machineState) { m.launch.ambiguousAt = s.Clock.Now() })
	default:
		// It took no effect. One that was sent before it still may.
		s.states.update(s.machine, func(m *machineState) { m.launch.ambiguousAt = unsettled })
	}
	s.created = err == nil
	refusedSoFar = refusedSoFar && refuses(err)
	if provider.CodeOf(err) == provider.AlreadyExists {
		// The token was used with other parameters: the specification or user data changed between a Create whose answer
		// was lost and this one.
		s.machine.Status.Applied = &v1beta1.AppliedStatus{}
		instance, err = s.findLaunched(ctx, inputs, attempt)
	}
	if err != nil {
		proceed := s.failed(err, fingerprint)
		s.recordRefused(refusedSoFar)
		return proceed, nil
	}
	if s.created {
		s.answered()
	}
	if instance == nil {
		return atTime, nil
	}
	return s.recordInstance(ctx, inputs, instance)
}

// unmanaged has the API server forget which process wrote which field of a Machine, and keep no account of it until
// somebody applies to it. That account is a third of a Machine, goes through every read and write of it, and is of no
// use where only a set and its provider write: those are what the audit log names. Of a Machine that a person made it
// stays, since tools that apply it need to know what they have applied.
var unmanaged = []metav1.ManagedFieldsEntry{{}}

// recordInstance writes down which instance the Machine has: the provider ID at once, for from then on Create is not
// called again.
func (s *launchStep) recordInstance(ctx context.Context, inputs resolve.Resolved,
	instance *provider.Instance) (progress, error) {
	if instance.ProviderID == "" {
		s.launching("The provider accepted the instance and has not named it yet.")
		return s.after(s.instance.pollInterval()), nil
	}
	if s.instance.replaced(instance) {
		s.launching("The provider still shows the instance that was replaced.")
		return s.after(s.instance.pollInterval()), nil
	}
	if !s.states.get(s.machine).launch.ambiguousAt.IsZero() {
		// Noted before it is written down: where only the answer to that is lost, the next pass finds the provider ID.
		s.states.noteCreated(s.machine, s.Clock.Now(), s.Cloud.CreateSettle())
	}
	err := s.patchMachine(ctx, func(m *v1beta1.Machine) {
		m.Spec.ProviderID = instance.ProviderID
		if metav1.GetControllerOfNoCopy(m) != nil && m.LaunchAttempt() == 1 {
			m.ManagedFields = unmanaged
		}
	})
	if err != nil {
		// The cloud may not show it next time, and its Node could then not be found.
		s.states.update(s.machine, func(m *machineState) { m.teardown.found = instance })
		return onError, err
	}
	s.states.update(s.machine, func(m *machineState) {
		*m = machineState{launch: launchState{ownToken: m.launch.ownToken, token: m.launch.token}}
	})
	s.instance.launched(inputs, instance)
	return next, nil
}

// tags are what every instance of the Machine carries.
func (s *launchStep) tags(attempt bootstrap.Attempt) map[string]string {
	return map[string]string{
		provider.TagCluster:    s.ClusterID,
		provider.TagMachineUID: string(s.machine.UID),
		provider.TagMachine:    attempt.Machine.String(),
	}
}

// launching says that an instance was asked for and is not there yet.
func (s *launchStep) launching(message string) {
	s.trying(v1beta1.ReasonProvisioning, message)
	s.failAfterTimeout(nil)
}

// preparing says what is done before the next Create. If the provider refused the last one, that stays the reason
// until the next one has another answer: the owner would count the machine as one that is coming up, and there would
// be an event for each try.
func (s *launchStep) preparing(message string) {
	if !s.refusedByProvider() {
		s.launching(message)
	}
}

// refusedByProvider reports whether the provider refused the configuration when it was last asked to create the
// instance.
func (s *launchStep) refusedByProvider() bool {
	launched, last := meta.FindStatusCondition(s.machine.Status.Conditions,
		v1beta1.ConditionLaunched), s.machine.Status.LastOperation
	return launched != nil && launched.Status == metav1.ConditionFalse &&
		launched.Reason == v1beta1.ReasonInvalidConfiguration &&
		last != nil && last.Type == v1beta1.OperationCreate && last.Code != ""
}

// trying says why there is no instance yet although one is wanted. Where the launch was refused before, its time begins
// only now.
func (s *launchStep) trying(reason, message string) (transition bool) {
	launched := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionLaunched)
	if launched != nil && launched.Status != metav1.ConditionTrue && !isTrying(launched.Reason) && isTrying(reason) {
		dropCondition(&s.machine.Status.Conditions, v1beta1.ConditionLaunched)
	}
	return s.setCondition(v1beta1.ConditionLaunched, false, reason, message)
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

// began is when the time in which the Machine must become a Node began: with its attempt or, while the cloud has no
// capacity for the instances that it accepts, with the first of these. A pause without an instance begins it again.
func (s *launchStep) began() time.Time {
	began := s.attemptBegan()
	if lacksCapacity(s.machine) && !s.isTrue(v1beta1.ConditionLaunched) {
		began = s.machine.Status.Launch.NoCapacitySince.Time
	}
	paused := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionPaused)
	if s.machine.Spec.ProviderID == "" && paused != nil && paused.Status == metav1.ConditionFalse {
		began = later(began, paused.LastTransitionTime.Time)
	}
	return began
}

// attemptBegan is when the attempt began: with the Machine, or with the last transition of Launched. One that waited
// for its class, or was paused, has all of its time when that is over.
func (s *launchStep) attemptBegan() time.Time {
	began := s.machine.CreationTimestamp.Time
	launched := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionLaunched)
	if launched != nil && launched.LastTransitionTime.After(began) {
		began = launched.LastTransitionTime.Time
	}
	return began
}

// refused says that nothing is tried until something changes. It is not a failure of the machine: replacing it
// would only make another one that is refused.
func (s *launchStep) refused(reason, message string) {
	if s.setCondition(v1beta1.ConditionLaunched, false, reason, message) {
		s.warn(reason, "Launch", message)
	}
	s.operation(v1beta1.OperationCreate, v1beta1.OperationFailed, message, "")
}

// failed records an error of Create and when the next try is due.
func (s *launchStep) failed(err error, fingerprint string) progress {
	c := createRetryPolicy(provider.CodeOf(err))
	message := messageOf(err)
	if s.trying(c.reason, message) {
		s.warn(c.reason, "Launch", message)
	}
	proceed := s.operationFailed(v1beta1.OperationCreate, c, err, fingerprint)
	if !c.isRejection() {
		s.failAfterTimeout(err)
	}
	return proceed
}

func identity(m *v1beta1.Machine) provider.Machine {
	return provider.Machine{Namespace: m.Namespace, Name: m.Name, UID: m.UID}
}

// messageOf returns the part of a driver's error that users see.
func messageOf(err error) string {
	if e, ok := errors.AsType[*provider.Error](err); ok {
		return wording.Truncate(e.Error(), 1024)
	}
	return wording.Truncate(err.Error(), 1024)
}

// resolveInputs finds what the Machine is made from, or says what is in the way.
func (s *launchStep) resolveInputs(ctx context.Context) (resolve.Resolved, progress, error) {
	if why := s.unsupportedSchema(s.machine); why != "" {
		s.refused(v1beta1.ReasonUnknownTypeVersion, why)
		return resolve.Resolved{}, onMachine, nil
	}
	inputs, err := s.Classes.Resolve(ctx, s.machine)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		s.refused(missing.Reason, missing.Message)
		return resolve.Resolved{}, onInputs, nil
	}
	if err != nil {
		return resolve.Resolved{}, onError, fmt.Errorf("resolve what the machine is made from: %w", err)
	}
	if s.provider == "" {
		// The class came after the Machine was found to have none. It must be claimed first.
		return resolve.Resolved{}, s.after(time.Second), nil
	}
	if inputs.Provider != s.Cloud.Name() {
		s.refused(v1beta1.ReasonInvalidConfiguration,
			fmt.Sprintf("Label %s is %q, but what the machine is made from is for provider %q.", v1beta1.LabelProvider,
				s.provider, inputs.Provider))
		return resolve.Resolved{}, onInputs, nil
	}
	if proceed := s.awaitClassProtection(inputs); proceed != next {
		return resolve.Resolved{}, proceed, nil
	}
	return inputs, next, nil
}

// launchReason is the reason of Launched once the instance is there.
func launchReason(m *v1beta1.Machine) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched); c != nil &&
		c.Status == metav1.ConditionTrue {
		return c.Reason
	}
	if m.Adopting() {
		return v1beta1.ReasonInstanceAdopted
	}
	return v1beta1.ReasonInstanceLaunched
}
