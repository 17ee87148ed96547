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

// launchInstance creates the instance of a Machine that has none.
func (p *pass) launchInstance(ctx context.Context) (progress, error) {
	if proceed, err := inOrder(ctx, p.mayLaunch, p.checkCapacity); err != nil || proceed != next {
		return proceed, err
	}
	inputs, fingerprint, proceed, err := p.launchInputs(ctx)
	if err != nil || proceed != next {
		return proceed, err
	}
	return p.createInstance(ctx, inputs, fingerprint)
}

// mayLaunch reports whether the state of the Machine permits a launch now.
func (p *pass) mayLaunch(ctx context.Context) (progress, error) {
	if proceed, err := p.releaseClass(ctx); err != nil || proceed != next {
		return proceed, err
	}
	if machinestate.IsPaused(p.machine) {
		return onMachine, nil
	}
	if preservation.IsPreserved(p.machine) {
		return onMachine, nil // A preserved Machine is kept for inspection and gets no new instance.
	}
	if refused := reservedKeys(p.machine); refused != "" {
		p.reportRefused(v1beta1.ReasonInvalidConfiguration, refused)
		return onMachine, nil
	}
	if left := p.awaitReplacement(); left > 0 {
		p.failAfterTimeout(nil)
		return p.after(left), nil
	}
	return next, nil
}

// launchInputs returns the inputs of the launch and their fingerprint. If these inputs must not be tried now, or if the
// Machine has no slot, the launch does not proceed.
func (p *pass) launchInputs(ctx context.Context) (inputs resolve.Inputs, fingerprint string, proceed progress,
	err error) {
	// A Machine without a slot does not read the inputs of the launch. Otherwise, a thousand waiting Machines would
	// read their Secrets again and again. A Machine whose attempt failed reads its inputs without a slot, to detect a
	// change. When the inputs have changed, the Machine needs a slot again.
	tried := p.states.get(p.machine).pace
	if tried.triedInputs == "" && tried.notBefore.IsZero() && !p.acquireSlot() {
		return inputs, "", p.awaitSlot(), nil
	}
	if inputs, proceed, err = p.resolveInputs(ctx); err != nil || proceed != next {
		return inputs, "", proceed, err
	}
	fingerprint = fingerprintOf(p.machine, inputs, attemptOf(p.machine))
	if tried.triedInputs == "" && !tried.notBefore.IsZero() {
		// The instance of the previous attempt has failed. From now on, a change of the inputs ends the delay.
		tried.triedInputs = fingerprint
		p.states.update(p.machine, func(m *machineState) { m.pace.triedInputs = fingerprint })
	}
	switch left, never := tried.waitTime(fingerprint, p.now); {
	case never:
		return inputs, "", onInputs, nil // The provider refused these inputs permanently, and nothing has changed.
	case left > 0:
		if !refusedByProvider(p.machine) {
			p.failAfterTimeout(nil)
		}
		return inputs, "", onInputs | p.after(left), nil
	}
	if !p.acquireSlot() {
		return inputs, "", p.awaitSlot(), nil
	}
	p.states.update(p.machine, func(m *machineState) { m.launch.queuedSince = time.Time{} })
	return inputs, fingerprint, next, nil
}

// createInstance calls Create and records the result.
func (p *pass) createInstance(ctx context.Context, inputs resolve.Inputs, fingerprint string) (progress, error) {
	attempt := attemptOf(p.machine)
	ours, err := p.isOurs(ctx)
	if err != nil {
		return onError, err
	}
	// Create must not be called for a Machine that is gone, is being deleted or already has its instance. If the cloud
	// no longer remembers the token of the request, another Create would create a second instance. The first Create
	// needs no check if no other process can have launched the Machine. In a placement, a former leader could create a
	// second instance in another place, unless beginAttempt shows that its Machine is outdated.
	if !ours || !p.states.get(p.machine).launch.ambiguousAt.IsZero() ||
		inPlacement(p.machine) && !p.machine.IsAwaitingCapacity() {
		if err := p.confirm(ctx, "creating its instance"); err != nil {
			return onError, err
		}
	}
	if err := p.confirmClassProtection(ctx, inputs); err != nil {
		return onError, err
	}

	userData, proceed, err := p.renderUserData(ctx, inputs, attempt)
	if err != nil || proceed != next {
		return proceed, err
	}
	unsettled := p.states.get(p.machine).launch.ambiguousAt
	refusedSoFar := refusedLaunch(p.machine) || p.machine.IsAwaitingCapacity() || ours && unsettled.IsZero()
	known, err := p.capacityState(ctx)
	if err != nil {
		return onError, err
	}
	if err := p.beginAttempt(ctx); err != nil {
		return onError, err
	}
	p.states.update(p.machine, func(m *machineState) {
		m.launch.ambiguousAt, m.launch.ownToken, m.teardown.foundInstance = p.now, ours, nil
		m.launch.requestedClass, m.launch.wasExhausted = inputs.ClassName, known.Exhausted
	})
	instance, err := p.Cloud.Create(ctx, provider.CreateRequest{
		Machine:   identity(p.machine),
		Class:     inputs.Class(),
		ClusterID: p.ClusterID,
		Token:     attempt.String(),
		Tags:      p.tags(attempt),
		UserData:  userData,
		Version:   p.machine.Spec.Version,
	})
	p.now = p.Clock.Now() // The conditions must not be older than the call.
	switch code := provider.CodeOf(err); {
	case err == nil, code.Ambiguous():
		// The settle time starts at the end of the call, because the call may have taken longer than the settle time.
		p.states.update(p.machine, func(m *machineState) { m.launch.ambiguousAt = p.Clock.Now() })
	default:
		// The failed call created no instance, but an earlier call may still create an instance.
		p.states.update(p.machine, func(m *machineState) { m.launch.ambiguousAt = unsettled })
	}
	created := err == nil
	refusedSoFar = refusedSoFar && refuses(err)
	if provider.CodeOf(err) == provider.AlreadyExists {
		// An earlier Create used this token with other parameters. The answer to that Create was lost, and afterwards
		// the spec or the user data changed.
		p.machine.Status.Applied = &v1beta1.AppliedStatus{}
		instance, err = p.findLaunched(ctx, inputs, attempt)
	}
	if err != nil {
		proceed := p.recordCreateFailure(err, fingerprint)
		p.recordRefused(refusedSoFar)
		if provider.CodeOf(err) == provider.ResourceExhausted {
			return p.recordNoCapacity(ctx, inputs.ClassName, err, proceed)
		}
		return proceed, nil
	}
	if created {
		p.callSucceeded()
	}
	if instance == nil {
		return atTime, nil
	}
	return p.recordInstance(ctx, inputs, instance, created)
}

// noManagedFields is a value with which the API server removes the managed fields of a Machine. Managed fields are a
// third of the size of a Machine, and part of each read and write. If only the MachineSet and the provider change a
// Machine, its managed fields are useless. The managed fields of a Machine that a user has created are kept, because
// tools that use server-side apply need them.
var noManagedFields = []metav1.ManagedFieldsEntry{{}}

// recordInstance records the instance that was created for the Machine. The provider ID is written at once, because it
// prevents another Create. The argument created is true if this pass has created the instance.
func (p *pass) recordInstance(ctx context.Context, inputs resolve.Inputs, instance *provider.Instance,
	created bool) (progress, error) {
	if instance.ProviderID == "" {
		p.reportLaunching("The provider accepted the creation of the instance, but has not returned its ID yet.")
		return p.after(p.pollInterval()), nil
	}
	if p.isOldInstance(instance) {
		p.reportLaunching("Waiting until the provider no longer shows the replaced instance.")
		return p.after(p.pollInterval()), nil
	}
	if !p.states.get(p.machine).launch.ambiguousAt.IsZero() {
		// Record the time before the patch. If the answer of the patch is lost, the next pass finds the provider ID in
		// the Machine and does not record the time.
		p.states.noteCreated(p.machine, p.Clock.Now(), p.Cloud.CreateSettle())
	}
	if instance.State == provider.StatePending && instance.CreateHandle != p.machine.CreateHandle() {
		// Without the handle, the cloud may not show the recorded instance for minutes.
		p.setCreateHandle(instance.CreateHandle)
		if err := p.writeStatus(ctx); err != nil {
			return onError, err
		}
	}
	err := p.patchMachine(ctx, func(m *v1beta1.Machine) {
		m.Spec.ProviderID = instance.ProviderID
		if metav1.GetControllerOfNoCopy(m) != nil && m.LaunchAttempt() == 1 {
			m.ManagedFields = noManagedFields
		}
	})
	if err != nil {
		// The cloud may not show the instance in the next pass. Without this record, its Node could not be found.
		p.states.update(p.machine, func(m *machineState) { m.teardown.foundInstance = instance })
		return onError, err
	}
	p.states.update(p.machine, func(m *machineState) {
		launch := launchState{ownToken: m.launch.ownToken, token: m.launch.token}
		if m.launch.wasExhausted {
			launch.requestedClass, launch.wasExhausted = m.launch.requestedClass, true
		}
		*m = machineState{launch: launch}
	})
	p.recordLaunched(inputs, instance, created)
	return next, nil
}

func (p *pass) tags(attempt bootstrap.Attempt) map[string]string {
	return map[string]string{
		provider.TagCluster:    p.ClusterID,
		provider.TagMachineUID: string(p.machine.UID),
		provider.TagMachine:    attempt.Machine.String(),
	}
}

func (p *pass) reportLaunching(message string) {
	p.reportNotLaunched(v1beta1.ReasonProvisioning, message)
	p.failAfterTimeout(nil)
}

// reportPreparing reports a step that must be done before the next Create. If the provider rejected the last Create,
// the condition keeps the reason of the rejection until the next answer. Otherwise, the owner would count the machine
// as starting, and each attempt would cause an event.
func (p *pass) reportPreparing(message string) {
	if !refusedByProvider(p.machine) {
		p.reportLaunching(message)
	}
}

// refusedByProvider reports whether the provider rejected the configuration in the last Create.
func refusedByProvider(m *v1beta1.Machine) bool {
	launched, last := meta.FindStatusCondition(m.Status.Conditions,
		v1beta1.ConditionLaunched), m.Status.LastOperation
	return launched != nil && launched.Status == metav1.ConditionFalse &&
		launched.Reason == v1beta1.ReasonInvalidConfiguration &&
		last != nil && last.Type == v1beta1.OperationCreate && last.Code != ""
}

// reportNotLaunched reports why the instance does not exist yet. If the launch was refused before, the time limit of
// the launch starts now.
func (p *pass) reportNotLaunched(reason, message string) (transition bool) {
	launched := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionLaunched)
	if launched != nil && launched.Status != metav1.ConditionTrue && !isTrying(launched.Reason) && isTrying(reason) {
		dropCondition(&p.machine.Status.Conditions, v1beta1.ConditionLaunched)
	}
	return p.setCondition(v1beta1.ConditionLaunched, false, reason, message)
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

// joinStart returns the start of the time in which the Machine must become a Node. The time usually starts with the
// current attempt. If accepted instances have failed for lack of capacity, the time starts with the first of these
// attempts. If the Machine has no instance, the time starts again at the end of a pause.
func joinStart(m *v1beta1.Machine) time.Time {
	began := attemptStart(m)
	if lacksCapacity(m) && !meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionLaunched) {
		began = m.Status.Launch.NoCapacitySince.Time
	}
	paused := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionPaused)
	if m.Spec.ProviderID == "" && paused != nil && paused.Status == metav1.ConditionFalse {
		began = later(began, paused.LastTransitionTime.Time)
	}
	return began
}

// attemptStart returns the start of the attempt: the creation time of the Machine, or the last transition time of the
// condition Launched. The time during which a Machine waited for its class or was paused does not count.
func attemptStart(m *v1beta1.Machine) time.Time {
	began := m.CreationTimestamp.Time
	launched := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched)
	if launched != nil && launched.LastTransitionTime.After(began) {
		began = launched.LastTransitionTime.Time
	}
	return began
}

// reportRefused reports that no instance will be created until something changes. The machine does not fail, because
// its replacement would be refused as well.
func (p *pass) reportRefused(reason, message string) {
	p.reportProblem(v1beta1.ConditionLaunched, false, reason, "Launch", message)
	p.operation(v1beta1.OperationCreate, v1beta1.OperationFailed, message, "")
}

func (p *pass) recordCreateFailure(err error, fingerprint string) progress {
	c := createRetryPolicy(provider.CodeOf(err))
	message := messageOf(err)
	if p.reportNotLaunched(c.reason, message) {
		p.warn(c.reason, "Launch", message)
	}
	proceed := p.operationFailed(v1beta1.OperationCreate, c, err, fingerprint)
	if !c.isRejection() {
		p.failAfterTimeout(err)
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

func (p *pass) resolveInputs(ctx context.Context) (resolve.Inputs, progress, error) {
	if why := p.unsupportedSchema(p.machine); why != "" {
		p.reportRefused(v1beta1.ReasonUnknownTypeVersion, why)
		return resolve.Inputs{}, onMachine, nil
	}
	inputs, err := p.Classes.Resolve(ctx, p.machine)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		p.reportRefused(missing.Reason, missing.Message)
		return resolve.Inputs{}, p.onMissing(missing), nil
	}
	if err != nil {
		return resolve.Inputs{}, onError, fmt.Errorf("resolve the machine's class and inputs: %w", err)
	}
	if p.provider == "" {
		// The class of the Machine was created during this pass. The next pass adds the provider label and the
		// finalizer to the Machine.
		return resolve.Inputs{}, p.after(time.Second), nil
	}
	if inputs.Provider != p.Cloud.Name() {
		p.reportRefused(v1beta1.ReasonInvalidConfiguration,
			fmt.Sprintf("Label %s is %q, but the machine's class or specification is for provider %q.", v1beta1.LabelProvider,
				p.provider, inputs.Provider))
		return resolve.Inputs{}, onInputs, nil
	}
	if proceed := p.awaitClassProtection(inputs); proceed != next {
		return resolve.Inputs{}, proceed, nil
	}
	return inputs, next, nil
}

func launchReason(m *v1beta1.Machine) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched); c != nil &&
		c.Status == metav1.ConditionTrue {
		return c.Reason
	}
	if m.IsAdopting() {
		return v1beta1.ReasonInstanceAdopted
	}
	return v1beta1.ReasonInstanceLaunched
}

// replacementGrace is how long a Machine of a MachineSet creates no instance after its creation timeout. The
// MachineSet usually deletes the failed Machine within this time, and would also delete a new instance. If the
// MachineSet does not replace the Machine, for example during an outage, the launch continues afterwards.
const replacementGrace = time.Minute

// awaitReplacement returns how long the creation of an instance must wait because the MachineSet will probably replace
// the Machine.
func (p *pass) awaitReplacement() time.Duration {
	if metav1.GetControllerOfNoCopy(p.machine) == nil || refusedByProvider(p.machine) {
		return 0
	}
	late := -p.joinTimeLeft()
	if late < 0 {
		return 0
	}
	return max(replacementGrace-late, 0)
}
