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

type launchStep struct {
	*pass
	// queued is true if the Machine waits for a slot for the creation. The field silent is true if the wait is still too
	// short to be written to the status.
	queued, silent bool
	// created is true if this pass has created the instance and the provider has returned its ID.
	created bool
}

func (s *launchStep) run(ctx context.Context) (progress, error) {
	if s.machine.Replacing() {
		return next, nil // The old instance is deleted first.
	}
	if s.machine.Retrying() {
		return s.discard(ctx)
	}
	if s.machine.Spec.ProviderID != "" {
		return s.instance.followInstance(ctx)
	}
	if proceed, err := s.releaseClass(ctx); err != nil || proceed != next {
		return proceed, err
	}
	if machinestate.Paused(s.machine) {
		return onMachine, nil
	}
	if preservation.Preserved(s.machine) {
		return onMachine, nil // A preserved Machine is kept for inspection and gets no new instance.
	}
	if refused := reservedKeys(s.machine); refused != "" {
		s.reportRefused(v1beta1.ReasonInvalidConfiguration, refused)
		return onMachine, nil
	}
	if left := s.awaitReplacement(); left > 0 {
		s.failAfterTimeout(nil)
		return s.after(left), nil
	}
	// A Machine without a slot does not read the inputs of the launch. Otherwise, a thousand waiting Machines would
	// read their Secrets again and again. After a failed attempt, a Machine needs no slot until its inputs change, so
	// the inputs must be read to detect a change.
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
		// The instance of the previous attempt has failed. From now on, a change of the inputs ends the delay.
		tried.tried = fingerprint
		s.states.update(s.machine, func(m *machineState) { m.pace.tried = fingerprint })
	}
	switch left, never := tried.waitTime(fingerprint, s.now); {
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
	s.states.update(s.machine, func(m *machineState) { m.launch.queuedSince = time.Time{} })

	ours, err := s.isOurs(ctx)
	if err != nil {
		return onError, err
	}
	// Create must not be called for a Machine that is gone, is being deleted or already has its instance. If the cloud
	// no longer remembers the token of the request, another Create would create a second instance. The first Create
	// needs no check if no other process can have launched the Machine.
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
	s.now = s.Clock.Now() // The conditions must not be older than the call.
	switch code := provider.CodeOf(err); {
	case err == nil, code.Ambiguous():
		// The settle time starts at the end of the call, because the call may have taken longer than the settle time.
		s.states.update(s.machine, func(m *machineState) { m.launch.ambiguousAt = s.Clock.Now() })
	default:
		// This call had no effect, but an earlier call may still create an instance.
		s.states.update(s.machine, func(m *machineState) { m.launch.ambiguousAt = unsettled })
	}
	s.created = err == nil
	refusedSoFar = refusedSoFar && refuses(err)
	if provider.CodeOf(err) == provider.AlreadyExists {
		// An earlier Create used this token with other parameters. Its answer was lost, and afterwards the spec or the
		// user data changed.
		s.machine.Status.Applied = &v1beta1.AppliedStatus{}
		instance, err = s.findLaunched(ctx, inputs, attempt)
	}
	if err != nil {
		proceed := s.recordCreateFailure(err, fingerprint)
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

// noManagedFields is a value with which the API server removes the managed fields of a Machine. Managed fields are a
// third of the size of a Machine, and part of each read and write. If only the MachineSet and the provider change a
// Machine, its managed fields are useless. The managed fields of a Machine that a user has created are kept, because
// tools that use server-side apply need them.
var noManagedFields = []metav1.ManagedFieldsEntry{{}}

// recordInstance records the instance that was created for the Machine. The provider ID is written at once, because it
// prevents another Create.
func (s *launchStep) recordInstance(ctx context.Context, inputs resolve.Resolved,
	instance *provider.Instance) (progress, error) {
	if instance.ProviderID == "" {
		s.reportLaunching("The provider accepted the creation of the instance, but has not returned its ID yet.")
		return s.after(s.instance.pollInterval()), nil
	}
	if s.instance.isOldInstance(instance) {
		s.reportLaunching("Waiting until the provider no longer shows the replaced instance.")
		return s.after(s.instance.pollInterval()), nil
	}
	if !s.states.get(s.machine).launch.ambiguousAt.IsZero() {
		// The time must be recorded before the patch. If the answer of the patch is lost, the next pass finds the
		// provider ID, but would not find the time.
		s.states.noteCreated(s.machine, s.Clock.Now(), s.Cloud.CreateSettle())
	}
	err := s.patchMachine(ctx, func(m *v1beta1.Machine) {
		m.Spec.ProviderID = instance.ProviderID
		if metav1.GetControllerOfNoCopy(m) != nil && m.LaunchAttempt() == 1 {
			m.ManagedFields = noManagedFields
		}
	})
	if err != nil {
		// The cloud may not show the instance in the next pass. Without this record, its Node could not be found.
		s.states.update(s.machine, func(m *machineState) { m.teardown.found = instance })
		return onError, err
	}
	s.states.update(s.machine, func(m *machineState) {
		*m = machineState{launch: launchState{ownToken: m.launch.ownToken, token: m.launch.token}}
	})
	s.instance.recordLaunched(inputs, instance)
	return next, nil
}

func (s *launchStep) tags(attempt bootstrap.Attempt) map[string]string {
	return map[string]string{
		provider.TagCluster:    s.ClusterID,
		provider.TagMachineUID: string(s.machine.UID),
		provider.TagMachine:    attempt.Machine.String(),
	}
}

func (s *launchStep) reportLaunching(message string) {
	s.reportNotLaunched(v1beta1.ReasonProvisioning, message)
	s.failAfterTimeout(nil)
}

// reportPreparing reports a step that must be done before the next Create. If the provider rejected the last Create,
// the condition keeps the reason of the rejection until the next answer. Otherwise, the owner would count the machine
// as starting, and each attempt would cause an event.
func (s *launchStep) reportPreparing(message string) {
	if !s.refusedByProvider() {
		s.reportLaunching(message)
	}
}

// refusedByProvider reports whether the provider rejected the configuration in the last Create.
func (s *launchStep) refusedByProvider() bool {
	launched, last := meta.FindStatusCondition(s.machine.Status.Conditions,
		v1beta1.ConditionLaunched), s.machine.Status.LastOperation
	return launched != nil && launched.Status == metav1.ConditionFalse &&
		launched.Reason == v1beta1.ReasonInvalidConfiguration &&
		last != nil && last.Type == v1beta1.OperationCreate && last.Code != ""
}

// reportNotLaunched reports why the instance does not exist yet. If the launch was refused before, the time limit of
// the launch starts now.
func (s *launchStep) reportNotLaunched(reason, message string) (transition bool) {
	launched := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionLaunched)
	if launched != nil && launched.Status != metav1.ConditionTrue && !isTrying(launched.Reason) && isTrying(reason) {
		dropCondition(&s.machine.Status.Conditions, v1beta1.ConditionLaunched)
	}
	return s.setCondition(v1beta1.ConditionLaunched, false, reason, message)
}

// isTrying reports whether this reason of the condition Launched means that a launch is in progress. The other reasons
// mean that the launch is refused.
func isTrying(reason string) bool {
	switch reason {
	case v1beta1.ReasonProvisioning, v1beta1.ReasonInsufficientResources, v1beta1.ReasonProviderUnavailable,
		v1beta1.ReasonCreateFailed, v1beta1.ReasonCredentialsRefused:
		return true
	}
	return false
}

// joinStart returns the start of the time in which the Machine must become a Node. This is usually the start of the
// attempt. If the cloud has no capacity for accepted instances, it is the start of the first such attempt. If the
// Machine has no instance, the time starts again at the end of a pause.
func (s *launchStep) joinStart() time.Time {
	began := s.attemptStart()
	if lacksCapacity(s.machine) && !s.isTrue(v1beta1.ConditionLaunched) {
		began = s.machine.Status.Launch.NoCapacitySince.Time
	}
	paused := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionPaused)
	if s.machine.Spec.ProviderID == "" && paused != nil && paused.Status == metav1.ConditionFalse {
		began = later(began, paused.LastTransitionTime.Time)
	}
	return began
}

// attemptStart returns the start of the attempt. This is the creation of the Machine or the last transition of
// Launched. The time during which a Machine waited for its class or was paused does not count.
func (s *launchStep) attemptStart() time.Time {
	began := s.machine.CreationTimestamp.Time
	launched := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionLaunched)
	if launched != nil && launched.LastTransitionTime.After(began) {
		began = launched.LastTransitionTime.Time
	}
	return began
}

// reportRefused reports that no instance will be created until something changes. The machine does not fail, because
// its replacement would be refused as well.
func (s *launchStep) reportRefused(reason, message string) {
	if s.setCondition(v1beta1.ConditionLaunched, false, reason, message) {
		s.warn(reason, "Launch", message)
	}
	s.operation(v1beta1.OperationCreate, v1beta1.OperationFailed, message, "")
}

func (s *launchStep) recordCreateFailure(err error, fingerprint string) progress {
	c := createRetryPolicy(provider.CodeOf(err))
	message := messageOf(err)
	if s.reportNotLaunched(c.reason, message) {
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

func messageOf(err error) string {
	if e, ok := errors.AsType[*provider.Error](err); ok {
		return wording.Truncate(e.Error(), 1024)
	}
	return wording.Truncate(err.Error(), 1024)
}

func (s *launchStep) resolveInputs(ctx context.Context) (resolve.Resolved, progress, error) {
	if why := s.unsupportedSchema(s.machine); why != "" {
		s.reportRefused(v1beta1.ReasonUnknownTypeVersion, why)
		return resolve.Resolved{}, onMachine, nil
	}
	inputs, err := s.Classes.Resolve(ctx, s.machine)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		s.reportRefused(missing.Reason, missing.Message)
		return resolve.Resolved{}, s.onMissing(missing), nil
	}
	if err != nil {
		return resolve.Resolved{}, onError, fmt.Errorf("resolve the machine's class and inputs: %w", err)
	}
	if s.provider == "" {
		// The class of the Machine was created during this pass. The Machine must be claimed first.
		return resolve.Resolved{}, s.after(time.Second), nil
	}
	if inputs.Provider != s.Cloud.Name() {
		s.reportRefused(v1beta1.ReasonInvalidConfiguration,
			fmt.Sprintf("Label %s is %q, but the machine's class or specification is for provider %q.", v1beta1.LabelProvider,
				s.provider, inputs.Provider))
		return resolve.Resolved{}, onInputs, nil
	}
	if proceed := s.awaitClassProtection(inputs); proceed != next {
		return resolve.Resolved{}, proceed, nil
	}
	return inputs, next, nil
}

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
