package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/pkg/provider"
)

// teardownStep deletes the instance of a Machine and everything that belongs to it. It runs when the Machine is deleted
// and when the instance is replaced.
type teardownStep struct {
	*pass
	// notOurs is true if the deleted Machine never added its tags to the instance. The instance stays unchanged.
	notOurs bool
	// instanceGone is true if the instance is known to be gone. Only its Node and its token may remain to be deleted.
	instanceGone bool
	// failing is true if the deletion of the instance has failed or could not be requested.
	failing bool
	// instanceLeft is true if a force-deletion continues although the instance, or a part of it, may remain.
	instanceLeft bool
	// leftBehind is true if the deletion continues without the target cluster.
	leftBehind bool
}

// run executes the deletion in this order: preDrain hooks, drain, preTerminate hooks, instance, Node, token and
// finalizer.
func (s *teardownStep) run(ctx context.Context) (progress, error) {
	s.preservation.tooLate()
	if !hasFinalizer(s.machine) {
		s.gone = true // Another finalizer keeps the Machine, or its delete event follows.
		s.forget(client.ObjectKeyFromObject(s.machine))
		return onMachine, nil
	}
	if machinestate.Paused(s.machine) {
		s.drain.suspend()
		s.deleting(v1beta1.ReasonPausedByAnnotation, "An annotation pauses the machine, so its deletion does not continue.")
		return onMachine, nil
	}
	for _, step := range []func(context.Context) (progress, error){
		s.orByForce(s.findLost), s.awaitPreDrainHooks, s.findNode, s.interruption.observeInDeletion, s.drain.run,
		s.awaitPreTerminateHooks, s.orByForce(s.deleteInstance), s.deleteNode, s.release,
	} {
		if proceed, err := step(ctx); err != nil || proceed != next {
			return proceed, err
		}
	}
	return next, nil
}

// secretBackstop is how long a Machine waits for an event of a Secret before it is reconciled again. Events of the
// Secret are mapped to Machines through their class, and the class may be gone.
const secretBackstop = 5 * time.Minute

// deleting reports what the deletion waits for. For an update that drains the node or replaces the instance, it reports
// what the update waits for.
func (s *teardownStep) deleting(reason, message string) {
	if s.interruption.interrupting {
		return // InterruptionNotice explains why the Machine is not Ready, and Drained reports the progress.
	}
	if s.machine.DeletionTimestamp.IsZero() {
		s.update.updateWaits(reason, message)
		return
	}
	s.machine.Status.Phase = v1beta1.MachineDeleting // The failureReason stays, because budgets and health checks need it.
	s.setCondition(v1beta1.ConditionDeleting, true, reason, message)
	s.setCondition(v1beta1.ConditionReady, false, reason, message)
	s.machine.Status.ObservedGeneration = s.machine.Generation
}

func (s *teardownStep) awaitPreDrainHooks(context.Context) (progress, error) {
	if hooks := s.machine.Spec.LifecycleHooks.PreDrain; len(hooks) > 0 {
		s.deleting(v1beta1.ReasonWaitingForPreDrainHook, "Waiting for the removal of preDrain hooks: "+hookNames(hooks)+".")
		return onMachine, nil
	}
	return next, nil
}

func (s *teardownStep) awaitPreTerminateHooks(context.Context) (progress, error) {
	if hooks := s.machine.Spec.LifecycleHooks.PreTerminate; len(hooks) > 0 {
		s.deleting(v1beta1.ReasonWaitingForPreTerminateHook, "Waiting for the removal of preTerminate hooks: "+hookNames(hooks)+".")
		return onMachine, nil
	}
	return next, nil
}

func hookNames(hooks []v1beta1.LifecycleHook) string {
	names := make([]string, len(hooks))
	for i, h := range hooks {
		names[i] = fmt.Sprintf("%s (owned by %s)", h.Name, h.Owner)
	}
	return strings.Join(names, ", ")
}

// findNode finds the Node. The Node may have registered a moment ago and may already have pods. Therefore, only the API
// server can confirm that there is no Node.
func (s *teardownStep) findNode(ctx context.Context) (progress, error) {
	if s.Target == nil || s.notOurs {
		return next, nil
	}
	if proceed, unreachable := s.waitWhileUnreachable(ctx); unreachable {
		return proceed, nil
	}
	if s.machine.Spec.ProviderID != "" {
		found, err := s.registration.findNode(ctx)
		switch {
		case err != nil:
			return s.targetUnreachable(ctx, err)
		case len(found.claimants) > 0:
			return s.chooseClaimant(found), nil
		case found.conflict != "" && !found.belongsToOther:
			return next, nil // The Node belongs to another machine, or its machine is unknown.
		case found.node != nil || found.otherID != nil:
			s.node = cmp.Or(found.node, found.otherID)
			return next, nil
		}
	}
	name := index.NodeName(s.machine)
	if name == "" {
		return next, nil
	}
	node := &corev1.Node{}
	switch err := s.Target.Live.Get(ctx, client.ObjectKey{Name: name}, node); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return s.targetUnreachable(ctx, fmt.Errorf("read node %s: %w", name, err))
	case node.Spec.ProviderID != "" && node.Spec.ProviderID == s.machine.NodeProviderID():
		other, err := s.registration.isConflicting(ctx, node)
		if err != nil {
			return s.targetUnreachable(ctx, err)
		}
		if !other {
			s.node = node
		}
	default:
		found, err := s.registration.decideByName(ctx, node)
		if err != nil {
			return s.targetUnreachable(ctx, err)
		}
		s.node = cmp.Or(found.node, found.otherID)
	}
	// The target cluster has answered, so the next failure starts a new series.
	s.states.update(s.machine, func(m *machineState) { m.teardown.targetUnreachableSince = time.Time{} })
	return next, nil
}

// chooseClaimant chooses the Node that is drained and deleted with the machine if several Nodes have its provider ID.
// After a rename of the host, the old Node remains, but its kubelet no longer updates its status. Therefore, a Node
// whose kubelet updates its status is preferred to the newest Node. If several kubelets update their Nodes, each of
// them may run pods. An administrator then has to decide which Node is wrong.
func (s *teardownStep) chooseClaimant(found candidate) progress {
	nodes := slices.SortedFunc(slices.Values(found.claimants), func(a, b *corev1.Node) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	chosen, reporting := nodes[0], 0
	for _, node := range nodes {
		if nodeReachable(node) {
			if reporting++; reporting == 1 {
				chosen = node
			}
		}
	}
	if reporting > 1 && !s.forced() && !s.instanceGone {
		message := found.conflict +
			" More than one of these Nodes has a running kubelet. Delete the wrong Node, or annotate the machine " +
			"with " + v1beta1.AnnotationForceDelete + "."
		before := meta.FindStatusCondition(s.before.Status.Conditions, v1beta1.ConditionDeleting)
		s.deleting(v1beta1.ReasonNodeConflict, message)
		if before == nil || before.Reason != v1beta1.ReasonNodeConflict {
			s.warn(v1beta1.ReasonNodeConflict, "Delete", message)
		}
		return onMachine | onNode | s.after(drainBackstop)
	}
	s.node = chosen.DeepCopy()
	return next
}

// targetPatience is the time after which a Machine without a Node is deleted although calls to the target cluster still
// fail. cleanupPatience is the corresponding time for a force-deleted Machine. Both times are longer than a process
// needs to restore a lost watch.
const (
	targetPatience  = 30 * time.Second
	cleanupPatience = time.Minute
)

// targetUnreachable stops the deletion. Without the target cluster, the controller does not know which pods the
// deletion would kill. A force-deletion deletes the instance anyway, and then tries to clean up the target cluster
// until cleanupPatience is over. If a machine never had a Node, its deletion continues after targetPatience, but only
// if the API server confirms that there is no Node.
func (s *teardownStep) targetUnreachable(ctx context.Context, err error) (progress, error) {
	if s.leftBehind || s.forced() && !s.instanceGone {
		return next, nil
	}
	failed, refused := s.now.Sub(s.targetFailsSince()), apierrors.IsUnauthorized(err)
	if s.forced() && failed >= cleanupPatience || failed >= targetPatience && !refused && s.neverJoined(ctx) {
		s.leftBehind = true
		return next, nil
	}
	if refused {
		s.deleting(v1beta1.ReasonTargetCredentialsRefused, "The target cluster refuses the provider's credentials: "+
			wording.Truncate(err.Error(), 256))
		return onError, err
	}
	s.deleting(v1beta1.ReasonTargetUnreachable, "The target cluster cannot be reached: "+wording.Truncate(err.Error(), 256))
	return onError, err
}

// targetFailsSince returns the time at which the current series of failed calls to the target cluster began. If there
// is no series, a new one begins now. Failures before and after the deletion of the instance are separate series. A
// series ends with an outage.
func (s *teardownStep) targetFailsSince() (since time.Time) {
	s.states.update(s.machine, func(m *machineState) {
		failing := &m.teardown.targetUnreachableSince
		if s.instanceGone {
			failing = &m.teardown.cleanupFailsSince
		}
		if failing.IsZero() || s.Reach != nil && outageEndedAfter(s.Reach, *failing) {
			*failing = s.now
		}
		since = *failing
	})
	return since
}

// neverJoined reports whether the API server confirms that the Machine has no Node. A failed read proves nothing,
// because the machine may have joined although this process cannot read the Node.
func (s *teardownStep) neverJoined(ctx context.Context) bool {
	if s.machine.Status.NodeRef != nil || s.node != nil {
		return false
	}
	name := index.NodeName(s.machine)
	return name == "" || apierrors.IsNotFound(s.Target.Live.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{}))
}

func (s *teardownStep) forced() bool {
	_, force := s.machine.Annotations[v1beta1.AnnotationForceDelete]
	return force
}

func (s *teardownStep) resolve(ctx context.Context) (resolve.Resolved, progress, error) {
	inputs, err := s.Classes.ResolveForDeletion(ctx, s.machine)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		if s.blocked(missing.Reason, missing.Message) {
			s.warn(missing.Reason, "Delete", missing.Message)
		}
		s.failing = true
		return inputs, onInputs | s.after(secretBackstop), nil
	}
	if err != nil {
		return inputs, onError, fmt.Errorf("resolve the credentials for deleting the instance: %w", err)
	}
	return inputs, next, nil
}

func (s *teardownStep) deleteInstance(ctx context.Context) (progress, error) {
	if s.notOurs && createdWithProviderID(s.machine) || s.neverCreated() || s.instanceLeft {
		return next, nil
	}
	inputs, proceed, err := s.resolve(ctx)
	if err != nil || proceed != next {
		return proceed, err
	}
	if never, err := s.neverLaunched(ctx, inputs); err != nil || never {
		return onError.unless(never), err
	}
	if proceed := s.awaitTry(inputs); proceed != next {
		return proceed, nil
	}
	req := provider.DeleteRequest{Machine: identity(s.machine), Class: inputs.Class(), ClusterID: s.ClusterID,
		ProviderID: s.machine.Spec.ProviderID}
	if s.notOurs {
		req.ProviderID = "" // Delete the instance with our tags, if there is one.
	}
	req.Scope = s.scope()
	result, err := s.Cloud.Delete(ctx, req)
	if err != nil {
		return s.deleteFailed(err, inputs), nil
	}
	s.callSucceeded()
	switch {
	case !result.Gone:
		s.states.update(s.machine, func(m *machineState) {
			m.pace, m.teardown.nothingFoundSince, m.teardown.accepted = pace{}, time.Time{}, true
		})
		s.reportRemoving(result.Left)
		return s.after(pollInterval(s.now.Sub(s.operationBegan()))), nil
	case req.ProviderID != "":
		return s.confirmGone(ctx, inputs, result), nil
	}
	return s.awaitSettleTime("No instance is known. Waiting for the settle time to pass, because an earlier call may still create one."), nil
}

// neverLaunched reports whether it is certain that no instance was ever requested. No instance is recorded, this
// process has sent no Create with an unknown result, and no provider is known. A finalizer protects the class of a
// launched Machine, so without a class there was no launch. The class is read from the API server, because a new class
// may be missing from the cache.
func (s *teardownStep) neverLaunched(ctx context.Context, inputs resolve.Resolved) (bool, error) {
	m := s.machine
	if m.Spec.ProviderID != "" || m.Status.Instance != nil || inputs.Provider != "" ||
		!s.states.get(m).launch.ambiguousAt.IsZero() {
		return false, nil
	}
	if m.Spec.ClassRef == nil {
		return true, nil
	}
	class := &v1beta1.MachineClass{}
	key := client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClassRef.Name}
	switch err := s.Live.Get(ctx, key, class); {
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
func (s *teardownStep) awaitSettleTime(message string) progress {
	since := s.nothingToDeleteSince()
	left := since.Add(s.Cloud.CreateSettle()).Sub(s.now)
	if left <= 0 {
		return next
	}
	s.deleting(v1beta1.ReasonCreateSettling, message)
	return s.after(left)
}

func (s *teardownStep) blocked(reason, message string) (transition bool) {
	before := ""
	if c := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionReady); c != nil {
		before = c.Reason
	}
	s.deleting(reason, message)
	return before != reason
}

func (s *teardownStep) deleteFailed(err error, inputs resolve.Resolved) progress {
	s.failing = true
	c := deleteRetryPolicy(provider.CodeOf(err))
	message := messageOf(err)
	if s.blocked(c.reason, message) {
		s.warn(c.reason, "Delete", message)
	}
	return s.operationFailed(v1beta1.OperationDelete, c, err, s.deleteFingerprint(inputs))
}

// deleteNode deletes the Node of an instance that is gone. If another Node now has the same name, that Node is not
// deleted.
func (s *teardownStep) deleteNode(ctx context.Context) (progress, error) {
	if s.notOurs || s.instanceLeft {
		return next, nil
	}
	s.instanceGone = true
	if s.node == nil {
		// The Node may have registered just before the instance was deleted. From now on no Node can.
		if proceed, err := s.findNode(ctx); err != nil || proceed != next {
			return proceed, err
		}
	}
	if proceed, err := s.detachByForce(ctx); err != nil || proceed != next {
		return proceed, err
	}
	if s.node == nil {
		return next, nil
	}
	uid := s.node.UID
	err := s.Target.Nodes.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node.Name}},
		client.Preconditions{UID: &uid})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return next, nil
	}
	return s.targetUnreachable(ctx, fmt.Errorf("delete node %s: %w", s.node.Name, err))
}

// release deletes the token and then the finalizer, so that the API server deletes the Machine.
func (s *teardownStep) release(ctx context.Context) (progress, error) {
	if s.Target != nil && !s.leftBehind && !s.notOurs && !s.isTrue(v1beta1.ConditionNodeHealthy) {
		// The Machine may never have run. If the Node became Ready, the token was already deleted at that time.
		if err := s.launch.dropToken(ctx); err != nil {
			if proceed, err := s.targetUnreachable(ctx, err); proceed != next {
				return proceed, err
			}
		}
	}
	err := s.removeFinalizer(ctx)
	if client.IgnoreNotFound(err) != nil {
		return onError, err
	}
	s.gone = true
	if err == nil {
		s.trace.deletionDone()
	}
	s.forget(client.ObjectKeyFromObject(s.machine))
	s.states.update(s.machine, func(m *machineState) { m.teardown.released = true })
	if err != nil {
		return next, nil // An earlier pass removed the finalizer, and the cache was outdated.
	}
	s.phaseEnded(phaseTermination, s.terminationBegan())
	s.observeSpans()
	message := "The instance is gone."
	if id := s.machine.Spec.ProviderID; id != "" {
		message = fmt.Sprintf("Instance %s is gone.", id)
	}
	if s.notOurs {
		message = fmt.Sprintf("Instance %s was never adopted and was not deleted.", s.machine.Spec.ProviderID)
	}
	if s.instanceLeft {
		message = "The machine was force-deleted. Its instance, or a part of it, may remain in the cloud."
	}
	if s.leftBehind {
		message += " The target cluster was unreachable, so a node and a bootstrap token of the machine may remain in it."
	}
	s.note(reasonDeleted, "Delete", message)
	return next, nil
}

// removeFinalizer removes the finalizer of this controller. It returns a conflict if another client has changed the
// Machine in the meantime. The patch is built directly, because this is cheaper than the comparison of two Machines.
func (s *teardownStep) removeFinalizer(ctx context.Context) error {
	left := slices.DeleteFunc(slices.Clone(s.before.Finalizers), func(f string) bool {
		return f == v1beta1.MachineFinalizer
	})
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": s.before.ResourceVersion,
		"finalizers": left}})
	if err != nil {
		return fmt.Errorf("encode the patch of the finalizers: %w", err)
	}
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.machine.Namespace, Name: s.machine.Name}}
	if err := s.Client.Patch(ctx, m, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	return nil
}
