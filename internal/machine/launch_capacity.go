package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/capacity"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/machine/preservation"
	"machinist.dev/machinist/pkg/provider"
)

// A Machine of a placement has other classes to choose from. If the cloud has no capacity for its class, the
// provider ends the attempt and the Machine enters the step AwaitingCapacity. In this step, no instance exists or
// can appear, so the MachineSet may change the class of the Machine. The provider requests an instance again when
// the class has capacity, or when the Machine is the one that probes an exhausted class.

// inPlacement reports whether a MachineSet may change the class of the Machine while the Machine has no instance.
func inPlacement(m *v1beta1.Machine) bool {
	return m.Labels[v1beta1.LabelPlacementDomain] != "" && m.Spec.ClassRef != nil
}

// checkCapacity reports whether a Machine of a placement may request an instance now. If the cloud has no capacity
// for its class, or if its class has changed during the attempt, checkCapacity ends the attempt.
func (p *pass) checkCapacity(ctx context.Context) (progress, error) {
	m := p.machine
	if !inPlacement(m) {
		return next, nil
	}
	if former, err := p.formerClasses(ctx); err != nil || len(former) > 0 {
		if err != nil {
			return onError, err
		}
		return p.endAttempt(ctx, former)
	}
	class, err := p.readClass(ctx, m.Spec.ClassRef.Name)
	if err != nil {
		return onError, err
	}
	if class == nil {
		return p.leaveMissingClass(ctx) // The next step reports the missing class.
	}
	state := capacity.StateOf(class)
	if !state.Exhausted {
		return next, nil
	}
	wait := state.Wait(p.now)
	if p.retryRequested() {
		wait = 0
	}
	if wait == 0 && p.capacity.AcquireProbe(class, client.ObjectKeyFromObject(m)) {
		p.probing = true
		return next, nil
	}
	if !m.IsAwaitingCapacity() {
		return p.endAttempt(ctx, []string{class.Name})
	}
	p.failAfterTimeout(nil)
	if wait == 0 {
		return onRequest, nil // Another machine probes, and the end of its probe triggers the next pass.
	}
	p.reportAwaitingCapacity(state)
	return onMachine | onClass | p.after(wait), nil
}

// leaveMissingClass ends the attempt of a Machine whose class does not exist, if it is certain that no instance was
// requested.
func (p *pass) leaveMissingClass(ctx context.Context) (progress, error) {
	ours, err := p.isOurs(ctx)
	if err == nil && (ours && p.states.get(p.machine).launch.ambiguousAt.IsZero() || p.isLaunchRefused() ||
		resolve.ReleasesClass(p.machine)) {
		err = p.awaitOtherClass(ctx)
	}
	return onError.unless(err == nil), err
}

// retryRequested reports whether an administrator has requested a retry since the Machine waits for capacity. A new
// process does not know when the annotation was set, and waits for the next value.
func (p *pass) retryRequested() bool {
	if !p.machine.IsAwaitingCapacity() {
		return false
	}
	known, retry := p.states.get(p.machine).launch, p.machine.Annotations[v1beta1.AnnotationRetry]
	if !known.awaitedCapacity {
		p.states.update(p.machine, func(m *machineState) { m.launch.awaitedCapacity, m.launch.seenRetry = true, retry })
		return false
	}
	return known.seenRetry != retry
}

// readClass returns a class of the Machine's namespace from the cache, or nil if the class does not exist. The
// caller must not change it.
func (p *pass) readClass(ctx context.Context, name string) (*v1beta1.MachineClass, error) {
	class := &v1beta1.MachineClass{}
	key := client.ObjectKey{Namespace: p.machine.Namespace, Name: name}
	switch err := p.Client.Get(ctx, key, class, client.UnsafeDisableDeepCopy); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read MachineClass %s: %w", key, err)
	}
	return class, nil
}

// capacityState returns what is known about the capacity for the Machine's class. A Machine with an inline
// specification has no class.
func (p *pass) capacityState(ctx context.Context) (capacity.State, error) {
	if p.machine.Spec.ClassRef == nil {
		return capacity.State{}, nil
	}
	class, err := p.readClass(ctx, p.machine.Spec.ClassRef.Name)
	if class == nil || err != nil {
		return capacity.State{}, err
	}
	return capacity.StateOf(class), nil
}

// formerClasses returns the classes of which the current attempt may have requested an instance, if the Machine may
// have had another class then. The token of an attempt prevents a second instance only in the same account and
// region. If another process may have called Create, and the spec has changed since the status last reported the
// launch, the class of that call is unknown. Then formerClasses returns all classes of the provider.
func (p *pass) formerClasses(ctx context.Context) ([]string, error) {
	m, launch := p.machine, p.states.get(p.machine).launch
	switch {
	case m.IsAwaitingCapacity() || p.isLaunchRefused():
		return nil, nil
	case launch.requestedClass == m.Spec.ClassRef.Name:
		return nil, nil
	case launch.requestedClass != "" && !launch.ambiguousAt.IsZero():
		return []string{launch.requestedClass}, nil
	case m.Generation <= launchGeneration(m):
		return nil, nil
	}
	if ours, err := p.isOurs(ctx); err != nil || ours {
		return nil, err
	}
	list := &v1beta1.MachineClassList{}
	if err := p.Client.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the classes of which an instance may have been requested: %w", err)
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].Spec.Provider == p.Cloud.Name() {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, nil
}

// launchGeneration returns the generation for which the status last reported the launch.
func launchGeneration(m *v1beta1.Machine) int64 {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched); c != nil {
		return c.ObservedGeneration
	}
	return 1
}

// isLaunchRefused reports whether it is certain that no Create for this Machine has had an effect.
func (p *pass) isLaunchRefused() bool {
	return refusedLaunch(p.machine) && p.states.get(p.machine).launch.ambiguousAt.IsZero()
}

// endAttempt ends the attempt to create an instance. If an instance of one of the given classes may have been
// requested, endAttempt first looks for it, and waits until the cloud would show it.
func (p *pass) endAttempt(ctx context.Context, classes []string) (progress, error) {
	ours, err := p.isOurs(ctx)
	if err != nil {
		return onError, err
	}
	ours = ours && p.states.get(p.machine).launch.ambiguousAt.IsZero()
	if !ours && !p.isLaunchRefused() {
		for _, class := range classes {
			if proceed, err := p.findInstanceOf(ctx, class); err != nil || proceed != next {
				return proceed, err
			}
		}
		if left := p.createUnsettled(); left > 0 {
			p.reportEnding(v1beta1.ReasonInsufficientResources, "Waiting for the settle time to pass, because an earlier "+
				"call may still create an instance. Then the machine waits for capacity.")
			return p.after(left), nil
		}
	}
	if !ours {
		// The cached Machine may be outdated, and the token may belong to an instance that is booting.
		if err := p.confirm(ctx, "ending the attempt to create its instance"); err != nil {
			return onError, err
		}
	}
	return p.awaitCapacity(ctx, ours)
}

// findInstanceOf looks for an instance of the Machine with the credentials and the place of a class. It records the
// instance that it finds.
func (p *pass) findInstanceOf(ctx context.Context, class string) (progress, error) {
	former := p.machine.DeepCopy()
	former.Spec.ClassRef = &v1beta1.LocalRef{Name: class}
	inputs, err := p.Classes.ResolveForDeletion(ctx, former)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		p.reportEnding(missing.Reason, fmt.Sprintf(
			"Cannot find out whether there is an instance of MachineClass %q: %s", class, missing.Message))
		return p.onMissing(missing) | p.after(secretBackstop), nil
	}
	if err != nil {
		return onError, fmt.Errorf("resolve how to find an instance of MachineClass %q: %w", class, err)
	}
	instance, err := p.getInstance(ctx, inputs)
	switch {
	case provider.IsNotFound(err):
		return next, nil
	case err != nil:
		p.reportEnding(p.lookupFailed(err), fmt.Sprintf(
			"Cannot find out whether there is an instance of MachineClass %q: %s", class, messageOf(err)))
		return atTime, nil
	}
	if proceed, err := p.recordInstance(ctx, inputs, instance, false); err != nil || proceed != next {
		return proceed, err
	}
	return p.after(time.Millisecond), nil
}

// reportEnding reports what the end of an attempt waits for. The generation in the condition stays the same, because
// another process must know that the class may have changed during the attempt.
func (p *pass) reportEnding(reason, message string) {
	generation := launchGeneration(p.machine)
	p.reportNotLaunched(reason, message)
	meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionLaunched).ObservedGeneration = generation
	p.failAfterTimeout(nil)
}

// awaitCapacity opens the next attempt, which begins when the Machine may request an instance again. No instance of
// the last attempt exists or can appear. The argument ours is true if only this process can have called Create.
func (p *pass) awaitCapacity(ctx context.Context, ours bool) (progress, error) {
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
	p.reportAwaitingCapacity(state)
	p.openParkedAttempt(ours)
	if m.Status.Launch.NoCapacitySince == nil {
		m.Status.Launch.NoCapacitySince = &metav1.Time{Time: attemptStart(m)}
	}
	return p.parked(), nil
}

// openParkedAttempt opens the next attempt in the step AwaitingCapacity. If only this process can have called Create
// and has not called it, the attempt has not begun and stays the same.
func (p *pass) openParkedAttempt(ours bool) {
	m := p.machine
	launch := v1beta1.LaunchStatus{Attempt: m.LaunchAttempt()}
	if m.Status.Launch != nil {
		launch = *m.Status.Launch
	}
	if !ours || p.states.get(m).launch.requestedClass != "" {
		launch.Attempt = m.NextLaunchAttempt()
	}
	launch.Step = v1beta1.LaunchStepAwaitingCapacity
	m.Status.Launch, m.Status.Applied = &launch, nil
}

// awaitOtherClass ends the attempt of a Machine of a placement whose class can no longer be used, so that the
// MachineSet may change the class. The caller has checked that no instance of this class was requested.
func (p *pass) awaitOtherClass(ctx context.Context) error {
	m := p.machine
	if !inPlacement(m) || m.IsAwaitingCapacity() {
		return nil
	}
	if former, err := p.formerClasses(ctx); err != nil || len(former) > 0 {
		return err // An instance of a former class may exist.
	}
	ours, err := p.isOurs(ctx)
	if err != nil {
		return err
	}
	if !ours {
		// The cached Machine may be outdated, and the token may belong to an instance that is booting.
		if err := p.confirm(ctx, "ending the attempt to create its instance"); err != nil {
			return err
		}
	}
	if p.Target != nil {
		if err := p.dropToken(ctx); err != nil {
			return err
		}
	}
	p.openParkedAttempt(ours)
	p.states.machines.Forget(client.ObjectKeyFromObject(m))
	return nil
}

// parked requeues a Machine that has entered the step AwaitingCapacity. The delay after the last failure does not
// apply, because the class says when to try again.
func (p *pass) parked() progress {
	if last := p.machine.Status.LastOperation; last != nil && last.Type == v1beta1.OperationCreate {
		last.NextTryTime = nil
	}
	p.states.machines.Forget(client.ObjectKeyFromObject(p.machine))
	p.failAfterTimeout(nil)
	return p.after(time.Millisecond) // The step must be durable before the next request.
}

func (p *pass) reportAwaitingCapacity(state capacity.State) {
	class := p.machine.Spec.ClassRef.Name
	message := fmt.Sprintf("Waiting to create an instance of MachineClass %q.", class)
	if state.Exhausted {
		message = fmt.Sprintf(
			"The cloud has no capacity for MachineClass %q. One machine of the class tries again after %s.",
			class, state.RetryTime.UTC().Format(time.RFC3339))
	}
	p.reportNotLaunched(v1beta1.ReasonInsufficientResources, message)
}

// reportAttempt reports that a Machine that waited for capacity requests an instance. The condition keeps its reason
// until the cloud has answered, so that another refusal causes no event.
func (p *pass) reportAttempt() {
	p.reportNotLaunched(v1beta1.ReasonInsufficientResources,
		fmt.Sprintf("Trying to create an instance of MachineClass %q.", p.machine.Spec.ClassRef.Name))
}

// recordNoCapacity records on the class that Create failed for lack of capacity. The attempt of a Machine of a
// placement then ends. For other Machines, the given result of the pass stays the same.
func (p *pass) recordNoCapacity(ctx context.Context, class string, refusal error,
	proceed progress) (progress, error) {
	if class == "" {
		return proceed, nil
	}
	if err := p.capacity.Refused(ctx, p.keyOfClass(class), messageOf(refusal)); err != nil {
		logf.FromContext(ctx).Error(err, "Cannot record the lack of capacity on the class")
		return proceed, nil // The class must say when to try again, so the attempt does not end.
	}
	if !inPlacement(p.machine) {
		return proceed, nil
	}
	return p.endAttempt(ctx, []string{class})
}

// recordLateNoCapacity records on the class that an accepted instance failed for lack of capacity.
func (p *pass) recordLateNoCapacity(ctx context.Context, message string) error {
	m, class := p.machine, ""
	if m.Status.Applied != nil {
		class = m.Status.Applied.ClassName
	}
	if class == "" && m.Spec.ClassRef != nil {
		class = m.Spec.ClassRef.Name
	}
	if class == "" {
		return nil
	}
	err := p.capacity.Refused(ctx, p.keyOfClass(class), message)
	if err != nil && !inPlacement(m) {
		logf.FromContext(ctx).Error(err, "Cannot record the lack of capacity on the class")
		return nil
	}
	return err
}

// recordCapacityFound records on the class that the cloud has capacity again. The proof is an instance that runs and
// that was requested while the class was exhausted. Other instances prove nothing, because they may be older.
func (p *pass) recordCapacityFound(ctx context.Context) error {
	m, launch := p.machine, p.states.get(p.machine).launch
	if !launch.wasExhausted || m.Spec.ProviderID == "" || m.Retrying() || m.Status.NodeRef == nil &&
		(m.Status.Instance == nil || m.Status.Instance.State != v1beta1.InstanceRunning) {
		return nil
	}
	if err := p.capacity.Found(ctx, p.keyOfClass(launch.requestedClass)); err != nil {
		return err
	}
	p.states.update(m, func(m *machineState) { m.launch.requestedClass, m.launch.wasExhausted = "", false })
	return nil
}

func (p *pass) keyOfClass(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: p.machine.Namespace, Name: name}
}

// keepsProbe reports whether the Machine still probes its class after a pass that waits for the given triggers.
func (p *pass) keepsProbe(waits progress) bool {
	m, launch := p.machine, p.states.get(p.machine).launch
	switch {
	case !m.DeletionTimestamp.IsZero() || machinestate.IsPaused(m) || preservation.IsPreserved(m):
		return false // Nothing ends the probe of a paused or preserved Machine, and others must not wait for it.
	case p.probing && waits&onSlot != 0:
		return true
	case !launch.wasExhausted:
		return false
	case m.Spec.ProviderID == "":
		return !launch.ambiguousAt.IsZero() // The result of the request is unknown.
	}
	return m.Status.FailureReason == "" && m.Status.NodeRef == nil &&
		(m.Status.Instance == nil || m.Status.Instance.State == v1beta1.InstancePending)
}

// releaseProbe ends the probe of a Machine. Other Machines that have waited for the end of the probe are reconciled.
func (r *Reconciler) releaseProbe(machine types.NamespacedName) {
	for _, waiting := range r.capacity.ReleaseProbe(machine) {
		r.trigger.Enqueue(waiting)
	}
}
