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

// launchStep creates the instance of a Machine that has none.
type launchStep struct {
	*pass
	// queued is true if the Machine waits for a slot for its creation. silent is true if the wait is not worth a write
	// of the status yet.
	queued, silent bool
	// created is true if this pass created the instance and the provider returned its ID.
	created bool
}

// run creates the instance, or follows the existing one until it runs.
func (s *launchStep) run(ctx context.Context) (progress, error) {
	if s.machine.Replacing() {
		return next, nil // The old instance is deleted first, together with its attempt.
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
		return onMachine, nil // A preserved Machine is kept for inspection. It does not get a new instance.
	}
	if refused := reservedKeys(s.machine); refused != "" {
		s.refused(v1beta1.ReasonInvalidConfiguration, refused)
		return onMachine, nil
	}
	if left := s.awaitReplacement(); left > 0 {
		s.failAfterTimeout(nil)
		return s.after(left), nil
	}
	// The inputs of the launch are read only when the Machine has its slot. Otherwise each of a thousand waiting
	// Machines would read its Secrets again and again. A Machine whose last try failed needs no slot until its inputs
	// change, and only reading the inputs shows that.
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
		// The instance of the previous attempt failed. From now on, a change of the inputs ends the wait.
		tried.tried = fingerprint
		s.states.update(s.machine, func(m *machineState) { m.pace.tried = fingerprint })
	}
	switch left, never := tried.left(fingerprint, s.now); {
	case never:
		return onInputs, nil // The provider refused these inputs permanently, and nothing has changed.
	case left > 0:
		if !s.refusedByProvider() {
			s.failAfterTimeout(nil)
		}
		return onInputs | s.after(left), nil
	}
	if !s.acquireSlot() {
		return s.awaitSlot(), nil
	}
	s.states.update(s.machine, func(m *machineState) { m.launch.queuedSince = time.Time{} }) // Not queued any more.

	ours, err := s.isOurs(ctx)
	if err != nil {
		return onError, err
	}
	// Nothing is created for a Machine that is gone, is being deleted or already has its instance. If the cloud has
	// forgotten the token, another Create would make a second instance. The first creation for a Machine that no other
	// process can have launched needs no such check.
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
	if err := s.withdrawRefused(ctx); err != nil {
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
		// The call may have taken longer than the settle time, which counts from the call's end.
		s.states.update(s.machine, func(m *machineState) { m.launch.ambiguousAt = s.Clock.Now() })
	default:
		// This call took no effect, but an earlier one still may.
		s.states.update(s.machine, func(m *machineState) { m.launch.ambiguousAt = unsettled })
	}
	s.created = err == nil
	refusedSoFar = refusedSoFar && refuses(err)
	if provider.CodeOf(err) == provider.AlreadyExists {
		// The token was used with other parameters: the specification or the user data changed after a Create whose
		// answer was lost.
		s.machine.Status.Applied = &v1beta1.AppliedStatus{}
		instance, err = s.findLaunched(ctx, inputs, attempt)
	}
	if err != nil {
		proceed := s.failed(err, fingerprint)
		s.recordRefused(refusedSoFar)
		return proceed, nil
	}
	if s.created {
		s.callSucceeded()
	}
	if instance == nil {
		return atTime, nil
	}
	return s.recordInstance(ctx, inputs, instance)
}

// unmanaged makes the API server drop the managed fields of a Machine and record no new ones until a client uses
// server-side apply. Managed fields make up a third of a Machine and are part of every read and write. They are useless
// for a Machine that only its set and its provider write, because the audit log names both. They stay on a Machine that
// was created by hand, because tools that apply it need them.
var unmanaged = []metav1.ManagedFieldsEntry{{}}

// recordInstance records the instance of the Machine. It writes the provider ID at once, because from then on Create is
// not called again.
func (s *launchStep) recordInstance(ctx context.Context, inputs resolve.Resolved,
	instance *provider.Instance) (progress, error) {
	if instance.ProviderID == "" {
		s.launching("The provider accepted the creation of the instance, but has not returned its ID yet.")
		return s.after(s.instance.pollInterval()), nil
	}
	if s.instance.replaced(instance) {
		s.launching("Waiting until the provider no longer shows the replaced instance.")
		return s.after(s.instance.pollInterval()), nil
	}
	if !s.states.get(s.machine).launch.ambiguousAt.IsZero() {
		// Recorded before the patch: if only the answer of the patch is lost, the next pass finds the provider ID.
		s.states.noteCreated(s.machine, s.Clock.Now(), s.Cloud.CreateSettle())
	}
	err := s.patchMachine(ctx, func(m *v1beta1.Machine) {
		m.Spec.ProviderID = instance.ProviderID
		if metav1.GetControllerOfNoCopy(m) != nil && m.LaunchAttempt() == 1 {
			m.ManagedFields = unmanaged
		}
	})
	if err != nil {
		// The cloud may not show the instance next time, and then its Node could not be found.
		s.states.update(s.machine, func(m *machineState) { m.teardown.found = instance })
		return onError, err
	}
	s.states.update(s.machine, func(m *machineState) {
		*m = machineState{launch: launchState{ownToken: m.launch.ownToken, token: m.launch.token}}
	})
	s.instance.launched(inputs, instance)
	return next, nil
}

// tags returns the tags of every instance of the Machine.
func (s *launchStep) tags(attempt bootstrap.Attempt) map[string]string {
	return map[string]string{
		provider.TagCluster:    s.ClusterID,
		provider.TagMachineUID: string(s.machine.UID),
		provider.TagMachine:    attempt.Machine.String(),
	}
}

// launching reports that the instance was requested and does not exist yet.
func (s *launchStep) launching(message string) {
	s.trying(v1beta1.ReasonProvisioning, message)
	s.failAfterTimeout(nil)
}

// preparing reports what is done before the next Create. If the provider refused the last Create, the refusal stays the
// reported reason until the next Create gets another answer. Otherwise the owner would count the machine as starting,
// and each try would cause an event.
func (s *launchStep) preparing(message string) {
	if !s.refusedByProvider() {
		s.launching(message)
	}
}

// refusedByProvider reports whether the provider refused the configuration at the last Create.
func (s *launchStep) refusedByProvider() bool {
	launched, last := meta.FindStatusCondition(s.machine.Status.Conditions,
		v1beta1.ConditionLaunched), s.machine.Status.LastOperation
	return launched != nil && launched.Status == metav1.ConditionFalse &&
		launched.Reason == v1beta1.ReasonInvalidConfiguration &&
		last != nil && last.Type == v1beta1.OperationCreate && last.Code != ""
}

// trying reports why there is no instance yet although one is wanted. If the launch was refused before, its time limit
// starts now.
func (s *launchStep) trying(reason, message string) (transition bool) {
	launched := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionLaunched)
	if launched != nil && launched.Status != metav1.ConditionTrue && !isTrying(launched.Reason) && isTrying(reason) {
		dropCondition(&s.machine.Status.Conditions, v1beta1.ConditionLaunched)
	}
	return s.setCondition(v1beta1.ConditionLaunched, false, reason, message)
}

// isTrying reports whether the reason of Launched means that a launch is under way, not that it was refused.
func isTrying(reason string) bool {
	switch reason {
	case v1beta1.ReasonProvisioning, v1beta1.ReasonInsufficientResources, v1beta1.ReasonProviderUnavailable,
		v1beta1.ReasonCreateFailed, v1beta1.ReasonCredentialsRefused:
		return true
	}
	return false
}

// began returns when the time in which the Machine must become a Node began. This is the start of its attempt. While
// the cloud has no capacity for the instances that it accepts, it is the start of the first such attempt. The end of a
// pause restarts the time of a Machine without an instance.
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

// attemptBegan returns when the attempt began: at the creation of the Machine, or at the last transition of Launched.
// So the time limit of a Machine that waited for its class or was paused starts when that wait ends.
func (s *launchStep) attemptBegan() time.Time {
	began := s.machine.CreationTimestamp.Time
	launched := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionLaunched)
	if launched != nil && launched.LastTransitionTime.After(began) {
		began = launched.LastTransitionTime.Time
	}
	return began
}

// refused reports that no instance is created until something changes. This is not a failure of the machine: a
// replacement would be refused as well.
func (s *launchStep) refused(reason, message string) {
	if s.setCondition(v1beta1.ConditionLaunched, false, reason, message) {
		s.warn(reason, "Launch", message)
	}
	s.operation(v1beta1.OperationCreate, v1beta1.OperationFailed, message, "")
}

// failed records an error of Create and the time of the next try.
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

// resolveInputs finds the inputs of the launch, or reports what is missing.
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
		return resolve.Resolved{}, onError, fmt.Errorf("resolve the machine's class and inputs: %w", err)
	}
	if s.provider == "" {
		// The class was created after this pass had found that the Machine's class did not exist. The Machine must be claimed
		// first.
		return resolve.Resolved{}, s.after(time.Second), nil
	}
	if inputs.Provider != s.Cloud.Name() {
		s.refused(v1beta1.ReasonInvalidConfiguration,
			fmt.Sprintf("Label %s is %q, but the machine's class or specification is for provider %q.", v1beta1.LabelProvider,
				s.provider, inputs.Provider))
		return resolve.Resolved{}, onInputs, nil
	}
	if proceed := s.awaitClassProtection(inputs); proceed != next {
		return resolve.Resolved{}, proceed, nil
	}
	return inputs, next, nil
}

// launchReason returns the reason of Launched for an existing instance.
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
