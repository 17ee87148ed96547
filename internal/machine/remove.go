package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/pkg/provider"
)

// removal deletes the instance of a Machine and everything that belongs to it. A removal is used when the Machine is
// deleted and when the instance is replaced. The fields of a removal are results of earlier steps of the same pass.
type removal struct {
	*pass
	// notOurs is true if the instance with the Machine's provider ID is not known to have the Machine's tags. The instance
	// and its Node stay unchanged.
	notOurs bool
	// instanceGone is true if the instance is known to be gone. Only its Node and its token may remain to be deleted.
	instanceGone bool
	// failing is true if the deletion of the instance has failed or could not be requested.
	failing bool
	// instanceLeft is true if a force-deletion continues although the instance, or a part of it, may remain.
	instanceLeft bool
	// leftBehind is true if the deletion continues without the target cluster.
	leftBehind bool
	// interrupting is true while the Node is drained because of an interruption notice.
	interrupting bool
	// stopping is set while the Node is drained because the instance is stopped. It contains what the drain waits for.
	stopping *powerReport
}

// mayRemove reports whether the deletion may continue: this process has not finished it yet, and the Machine is not
// paused.
func (p *pass) mayRemove() progress {
	p.tooLate()
	if !hasFinalizer(p.machine) {
		p.finalizerRemoved = true // The Machine has another finalizer, or its delete event follows.
		p.forget(client.ObjectKeyFromObject(p.machine))
		return onMachine
	}
	if machinestate.IsPaused(p.machine) {
		p.suspendDrain()
		r := &removal{pass: p}
		r.reportDeleting(v1beta1.ReasonPausedByAnnotation, "An annotation pauses the machine, so its deletion does not continue.")
		return onMachine
	}
	return next
}

// secretBackstop is how long a Machine waits for an event of a Secret before it is reconciled again. The class of a
// Machine connects an event of the Secret to the Machine. If the class is gone, such events do not trigger the Machine.
const secretBackstop = 5 * time.Minute

// reportDeleting writes to the status what the deletion waits for. For an update that drains the node or replaces the
// instance, it reports what the update waits for.
func (r *removal) reportDeleting(reason, message string) {
	if r.interrupting {
		return // InterruptionNotice explains why the Machine is not Ready, and Drained reports the progress.
	}
	if r.stopping != nil {
		*r.stopping = powerReport{false, reason, message}
		return
	}
	if r.machine.DeletionTimestamp.IsZero() {
		r.updateWaits(reason, message)
		return
	}
	r.machine.Status.Phase = v1beta1.MachineDeleting // The failureReason stays, because budgets and health checks need it.
	r.setCondition(v1beta1.ConditionDeleting, true, reason, message)
	r.setCondition(v1beta1.ConditionReady, false, reason, message)
	r.machine.Status.ObservedGeneration = r.machine.Generation
}

func (r *removal) awaitPreDrainHooks(context.Context) (progress, error) {
	return r.awaitHooks(r.machine.Spec.LifecycleHooks.PreDrain, v1beta1.ReasonWaitingForPreDrainHook, "preDrain"), nil
}

func (r *removal) awaitPreTerminateHooks(context.Context) (progress, error) {
	hooks := r.machine.Spec.LifecycleHooks.PreTerminate
	return r.awaitHooks(hooks, v1beta1.ReasonWaitingForPreTerminateHook, "preTerminate"), nil
}

func (r *removal) awaitHooks(hooks []v1beta1.LifecycleHook, reason, kind string) progress {
	if len(hooks) == 0 {
		return next
	}
	r.reportDeleting(reason, "Waiting for the removal of "+kind+" hooks: "+hookNames(hooks)+".")
	return onMachine
}

func hookNames(hooks []v1beta1.LifecycleHook) string {
	names := make([]string, len(hooks))
	for i, h := range hooks {
		names[i] = fmt.Sprintf("%s (owned by %s)", h.Name, h.Owner)
	}
	return strings.Join(names, ", ")
}

func forced(m *v1beta1.Machine) bool {
	_, force := m.Annotations[v1beta1.AnnotationForceDelete]
	return force
}

func (r *removal) resolveForDeletion(ctx context.Context) (resolve.Inputs, progress, error) {
	inputs, err := r.Classes.ResolveForDeletion(ctx, r.machine)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		r.reportBlocked(missing.Reason, missing.Message)
		r.failing = true
		return inputs, onInputs | r.after(secretBackstop), nil
	}
	if err != nil {
		return inputs, onError, fmt.Errorf("resolve the credentials for deleting the instance: %w", err)
	}
	return inputs, next, nil
}

func (r *removal) deleteInstance(ctx context.Context) (progress, error) {
	if r.notOurs && createdWithProviderID(r.machine) || r.neverCreated() || r.instanceLeft {
		return next, nil
	}
	inputs, proceed, err := r.resolveForDeletion(ctx)
	if err != nil || proceed != next {
		return proceed, err
	}
	if never, err := r.neverLaunched(ctx, inputs); err != nil || never {
		return onError.unless(never), err
	}
	if proceed := r.awaitTry(inputs); proceed != next {
		return proceed, nil
	}
	req := provider.DeleteRequest{Machine: identity(r.machine), Class: inputs.Class(), ClusterID: r.ClusterID,
		ProviderID: r.machine.Spec.ProviderID}
	if r.notOurs {
		req.ProviderID = "" // Delete the instance with our tags, if there is one.
	}
	req.Scope, req.CreateHandle = scopeOf(r.machine), r.machine.CreateHandle()
	result, err := r.Cloud.Delete(ctx, req)
	if err != nil {
		return r.deleteFailed(err, inputs), nil
	}
	r.callSucceeded()
	switch {
	case !result.Gone:
		r.states.update(r.machine, func(m *machineState) {
			m.pace, m.teardown.nothingFoundSince, m.teardown.deletionAccepted = pace{}, time.Time{}, true
		})
		r.reportRemoving(result.Remaining)
		return r.after(pollInterval(r.now.Sub(r.operationBegan()))), nil
	case req.ProviderID != "":
		return r.confirmGone(ctx, inputs, result), nil
	}
	return r.awaitSettleTime("No instance is known. Waiting for the settle time to pass, because an earlier call may still create an instance."), nil
}

// neverLaunched reports whether it is certain that no instance was ever requested. No instance is recorded, this
// process has sent no Create with an unknown result, and no provider is known. A finalizer protects the class of a
// launched Machine, so without a class there was no launch. The class is read from the API server, because a new class
// may be missing from the cache.
func (r *removal) neverLaunched(ctx context.Context, inputs resolve.Inputs) (bool, error) {
	m := r.machine
	if m.Spec.ProviderID != "" || m.Status.Instance != nil || inputs.Provider != "" ||
		!r.states.get(m).launch.ambiguousAt.IsZero() {
		return false, nil
	}
	if m.Spec.ClassRef == nil {
		return true, nil
	}
	class := &v1beta1.MachineClass{}
	key := client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClassRef.Name}
	switch err := r.LiveReader.Get(ctx, key, class); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read MachineClass %s: %w", key, err)
	case len(resolve.OfClass(class).ProviderSpec) == 0:
		return true, nil // No instance can be created from this class.
	}
	return false, errStale
}

// awaitSettleTime waits until the cloud would show the instance of any earlier Create. Two reads must find nothing, and
// the time between them must be at least CreateSettle.
func (r *removal) awaitSettleTime(message string) progress {
	since := r.nothingToDeleteSince()
	left := since.Add(r.Cloud.CreateSettle()).Sub(r.now)
	if left <= 0 {
		return next
	}
	r.reportDeleting(v1beta1.ReasonCreateSettling, message)
	return r.after(left)
}

// reportBlocked reports why the deletion cannot continue. If the reason is new, it also records a warning.
func (r *removal) reportBlocked(reason, message string) {
	before := meta.FindStatusCondition(r.machine.Status.Conditions, v1beta1.ConditionReady)
	known := before != nil && before.Reason == reason
	if r.reportDeleting(reason, message); !known {
		r.warn(reason, "Delete", message)
	}
}

func (r *removal) deleteFailed(err error, inputs resolve.Inputs) progress {
	r.failing = true
	c := deleteRetryPolicy(provider.CodeOf(err))
	r.reportBlocked(c.reason, messageOf(err))
	return r.operationFailed(v1beta1.OperationDelete, c, err, r.deleteFingerprint(inputs))
}

// release deletes the token and then the finalizer, so that the API server deletes the Machine.
func (r *removal) release(ctx context.Context) (progress, error) {
	neverTagged := r.notOurs && createdWithProviderID(r.machine)
	if r.Target != nil && !r.leftBehind && !neverTagged && !r.isTrue(v1beta1.ConditionNodeHealthy) {
		// The Machine may never have run. If the Node became Ready, the token was already deleted at that time.
		if err := r.dropToken(ctx); err != nil {
			if proceed, err := r.targetUnreachable(ctx, err); proceed != next {
				return proceed, err
			}
		}
	}
	err := r.removeFinalizer(ctx)
	if client.IgnoreNotFound(err) != nil {
		return onError, err
	}
	r.finalizerRemoved = true
	if err == nil {
		r.trace.deletionDone()
	}
	r.forget(client.ObjectKeyFromObject(r.machine))
	r.states.update(r.machine, func(m *machineState) { m.teardown.finalizerRemoved = true })
	if err != nil {
		return next, nil // An earlier pass removed the finalizer, and the cache was outdated.
	}
	steps := removalSteps(r.machine, r.machine.DeletionTimestamp.Time, r.Clock.Now())
	r.phaseEnded(phaseTermination, steps[len(steps)-1].Start)
	r.observeSpans()
	message := "The instance is gone."
	if id := r.machine.Spec.ProviderID; id != "" {
		message = fmt.Sprintf("Instance %s is gone.", id)
	}
	if r.notOurs {
		message = fmt.Sprintf("Instance %s is not known to belong to this machine. The instance and its node were not deleted.", r.machine.Spec.ProviderID)
	}
	if r.instanceLeft {
		message = "The machine was force-deleted. Its instance, or a part of it, may remain in the cloud."
	}
	if r.leftBehind {
		message += " The target cluster was unreachable, so a node and a bootstrap token of the machine may remain in it."
	}
	r.note(reasonDeleted, "Delete", message)
	return next, nil
}

// removeFinalizer removes the finalizer of this controller. It returns a conflict if another client has changed the
// Machine in the meantime. The patch is built directly, because this is cheaper than the comparison of two Machines.
func (r *removal) removeFinalizer(ctx context.Context) error {
	left := slices.DeleteFunc(slices.Clone(r.original.Finalizers), func(f string) bool {
		return f == v1beta1.MachineFinalizer
	})
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": r.original.ResourceVersion,
		"finalizers": left}})
	if err != nil {
		return fmt.Errorf("encode the patch of the finalizers: %w", err)
	}
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: r.machine.Namespace, Name: r.machine.Name}}
	if err := r.Client.Patch(ctx, m, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	return nil
}

// leftNamedAfter is the time after which the status of a deletion reports what remains in the cloud. Before this
// time, it is normal that a cloud still detaches volumes and network interfaces.
const leftNamedAfter = 3 * time.Minute

// reportRemoving reports that the provider is deleting the instance. After leftNamedAfter, it also reports what remains
// in the cloud.
func (r *removal) reportRemoving(left string) {
	const usual = "The provider is deleting the instance."
	r.operation(v1beta1.OperationDelete, v1beta1.OperationProcessing, usual, "")
	message := usual
	if last := r.machine.Status.LastOperation; left != "" && last != nil && last.Type == v1beta1.OperationDelete &&
		r.now.Sub(r.operationBegan()) >= leftNamedAfter {
		message = "The cloud has not deleted all parts of the instance yet. Remaining: " + wording.Truncate(left, 1024)
	}
	before := meta.FindStatusCondition(r.machine.Status.Conditions, v1beta1.ConditionDeleting)
	if message != usual && (before == nil || before.Message != message) {
		r.warn(v1beta1.ReasonInstanceTerminating, "Delete", message)
	}
	r.reportDeleting(v1beta1.ReasonInstanceTerminating, message)
}
