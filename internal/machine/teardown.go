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
	"machinist.dev/machinist/internal/index"
	"machinist.dev/machinist/internal/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

// delete takes the machine down: hooks, drain, hooks, instance, node, token, and only then the finalizer.
func (p *pass) delete(ctx context.Context) error {
	p.tooLateToPreserve()
	if !hasFinalizer(p.machine) {
		p.gone = true // Another finalizer keeps it, or it is gone with the next event.
		p.forget(client.ObjectKeyFromObject(p.machine))
		return nil
	}
	if paused(p.machine) {
		if p.Drainer != nil {
			p.Drainer.Forget(client.ObjectKeyFromObject(p.machine))
		}
		p.deleting(v1beta1.ReasonPausedByAnnotation, "An annotation pauses the deletion.")
		return nil
	}
	for _, step := range []func(context.Context) (progress, error){
		p.findLost, p.awaitPreDrainHooks, p.findNodeToDelete, p.noteInterruptionInDeletion, p.drain, p.awaitPreTerminateHooks,
		p.deleteInstance, p.deleteNode, p.release,
	} {
		if proceed, err := step(ctx); err != nil || !bool(proceed) {
			return err
		}
	}
	return nil
}

// secretBackstop is after how long a Machine that waits for a Secret is reconciled without an event: its class,
// needed to find the Machines of a Secret, may be gone.
const secretBackstop = 5 * time.Minute

// deleting says what the deletion waits for, or the update that drains the node or replaces the instance.
func (p *pass) deleting(reason, message string) {
	if p.interrupting {
		return // The condition InterruptionNotice is in the way, and Drained says how far the drain is.
	}
	if p.machine.DeletionTimestamp.IsZero() {
		p.updateWaits(reason, message)
		return
	}
	p.machine.Status.Phase = v1beta1.MachineDeleting
	p.machine.Status.FailureReason, p.machine.Status.FailureMessage = "", ""
	p.setCondition(v1beta1.ConditionDeleting, true, reason, message)
	p.setCondition(v1beta1.ConditionReady, false, reason, message)
	p.machine.Status.ObservedGeneration = p.machine.Generation
}

func (p *pass) awaitPreDrainHooks(context.Context) (progress, error) {
	if hooks := p.machine.Spec.LifecycleHooks.PreDrain; len(hooks) > 0 {
		p.deleting(v1beta1.ReasonWaitingForPreDrainHook, "Waiting for "+hookNames(hooks)+".")
		return wait, nil
	}
	return next, nil
}

func (p *pass) awaitPreTerminateHooks(context.Context) (progress, error) {
	if hooks := p.machine.Spec.LifecycleHooks.PreTerminate; len(hooks) > 0 {
		p.deleting(v1beta1.ReasonWaitingForPreTerminateHook, "Waiting for "+hookNames(hooks)+".")
		return wait, nil
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

// findNodeToDelete finds the Node, asking the API server itself before it believes that there is none: a Node that
// registered a moment ago has pods to drain as well.
func (p *pass) findNodeToDelete(ctx context.Context) (progress, error) {
	if p.Target == nil || p.notOurs {
		return next, nil
	}
	if proceed, unreachable := p.waitWhileUnreachable(ctx); unreachable {
		return proceed, nil
	}
	if p.machine.Spec.ProviderID != "" {
		found, err := p.findNode(ctx)
		switch {
		case err != nil:
			return p.targetUnreachable(ctx, err)
		case len(found.claimants) > 0:
			return p.chooseClaimant(found), nil
		case found.conflict != "" && !found.belongsToOther:
			return next, nil // The Node is another machine's, or nobody knows whose.
		case found.node != nil:
			p.node = found.node
			return next, nil
		}
	}
	name := index.NodeName(p.machine)
	if name == "" {
		return next, nil
	}
	node := &corev1.Node{}
	switch err := p.Target.Live.Get(ctx, client.ObjectKey{Name: name}, node); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return p.targetUnreachable(ctx, fmt.Errorf("read node %s: %w", name, err))
	case node.Spec.ProviderID != "" && node.Spec.ProviderID == p.machine.Spec.ProviderID:
		other, err := p.isConflicting(ctx, node)
		if err != nil {
			return p.targetUnreachable(ctx, err)
		}
		if !other {
			p.node = node
		}
	default:
		found, err := p.judgeByName(ctx, node)
		if err != nil {
			return p.targetUnreachable(ctx, err)
		}
		p.node = found.node
	}
	return next, nil
}

// chooseClaimant decides which of several Nodes with the provider ID is drained and deleted with the machine: the one
// whose kubelet reports, since an instance has one kubelet, and a Node that was left when its host got another name
// is silent. Of silent ones it is the newest. Where several report, pods run behind each, and a person has to say
// which Node is wrong.
func (p *pass) chooseClaimant(s candidate) progress {
	nodes := slices.SortedFunc(slices.Values(s.claimants), func(a, b *corev1.Node) int {
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
	if reporting > 1 && !p.forced() && !p.instanceGone {
		message := s.conflict + " The kubelets of both report. Delete the Node that is wrong, or annotate the machine with " +
			v1beta1.AnnotationForceDelete + "."
		before := meta.FindStatusCondition(p.before.Status.Conditions, v1beta1.ConditionDeleting)
		p.deleting(v1beta1.ReasonNodeConflict, message)
		if before == nil || before.Reason != v1beta1.ReasonNodeConflict {
			p.warn(v1beta1.ReasonNodeConflict, "Delete", message)
		}
		p.requeueIn(drainBackstop)
		return wait
	}
	p.node = chosen.DeepCopy()
	return next
}

// targetPatience is how long the target cluster may fail before a Machine without a Node is deleted without it, and
// cleanupPatience how long before one that its user wants deleted by force is. That is more than a watch that was
// lost takes to be there again.
const (
	targetPatience  = 30 * time.Second
	cleanupPatience = time.Minute
)

// targetUnreachable holds the deletion up: without the target cluster nobody can tell whose pods would be killed. The
// instance of a machine with the force annotation is deleted anyway, after some tries to remove what is left in the
// target cluster. A machine that never had a Node is deleted as well if the API server confirms that: then only other
// calls fail, more than once.
func (p *pass) targetUnreachable(ctx context.Context, err error) (progress, error) {
	if p.leftBehind || p.forced() && !p.instanceGone {
		return next, nil
	}
	failed, refused := p.now.Sub(p.targetFailsSince()), apierrors.IsUnauthorized(err)
	if p.forced() && failed >= cleanupPatience || failed >= targetPatience && !refused && p.neverJoined(ctx) {
		p.leftBehind = true
		return next, nil
	}
	if refused {
		p.deleting(v1beta1.ReasonTargetCredentialsRefused, "The target cluster refuses the provider's credentials: "+
			bounded(err.Error(), 256))
		return wait, err
	}
	p.deleting(v1beta1.ReasonTargetUnreachable, "The target cluster cannot be reached: "+bounded(err.Error(), 256))
	return wait, err
}

// targetFailsSince is when the target cluster first failed this process in this deletion, now at the latest: before the
// instance was gone or after that.
func (p *pass) targetFailsSince() (since time.Time) {
	p.states.update(p.machine, func(m *machineState) {
		failing := &m.teardown.targetUnreachableSince
		if p.instanceGone {
			failing = &m.teardown.cleanupFailsSince
		}
		if failing.IsZero() {
			*failing = p.now
		}
		since = *failing
	})
	return since
}

// neverJoined reports whether the API server says that there is no Node of the Machine. A read that fails proves
// nothing: the machine may have joined while this process cannot see it.
func (p *pass) neverJoined(ctx context.Context) bool {
	if p.machine.Status.NodeRef != nil || p.node != nil {
		return false
	}
	name := index.NodeName(p.machine)
	return name == "" || apierrors.IsNotFound(p.Target.Live.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{}))
}

func (p *pass) forced() bool {
	_, force := p.machine.Annotations[v1beta1.AnnotationForceDelete]
	return force
}

// resolveForDeletion finds out how the instance is reached to take it down, and waits for what is missing.
func (p *pass) resolveForDeletion(ctx context.Context) (resolve.Resolved, progress, error) {
	inputs, err := p.Classes.ResolveForDeletion(ctx, p.machine)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		if p.deletingBlocked(missing.Reason, missing.Message) {
			p.warn(missing.Reason, "Delete", missing.Message)
		}
		p.requeueIn(secretBackstop)
		return inputs, wait, nil
	}
	if err != nil {
		return inputs, wait, fmt.Errorf("resolve how to reach the instance to be deleted: %w", err)
	}
	return inputs, next, nil
}

// deleteInstance asks the provider to remove the instance until it is gone.
func (p *pass) deleteInstance(ctx context.Context) (progress, error) {
	if p.notOurs && bornWithInstance(p.machine) {
		return next, nil
	}
	inputs, proceed, err := p.resolveForDeletion(ctx)
	if err != nil || !bool(proceed) {
		return wait, err
	}
	if never, err := p.neverLaunched(ctx, inputs); err != nil || never {
		return progress(never), err
	}
	req := provider.DeleteRequest{Machine: identity(p.machine), Class: inputs.Class(), ClusterID: p.ClusterID,
		ProviderID: p.machine.Spec.ProviderID}
	if p.notOurs {
		req.ProviderID = "" // What carries our tags, if anything does.
	}
	if status := p.machine.Status.Instance; status != nil {
		req.Scope = status.Scope
	}
	result, err := p.Cloud.Delete(ctx, req)
	switch {
	case err != nil:
		p.deleteFailed(err)
		return wait, nil
	case !result.Gone:
		p.states.update(p.machine, func(m *machineState) {
			m.teardown.failures, m.teardown.nothingFoundSince, m.teardown.accepted = 0, time.Time{}, true
		})
		p.deleting(v1beta1.ReasonInstanceTerminating, "The provider is removing the instance.")
		p.operation(v1beta1.OperationDelete, v1beta1.OperationProcessing, "The provider is removing the instance.", "")
		p.requeueIn(pollInterval(p.now.Sub(p.machine.Status.LastOperation.LastUpdateTime.Time)))
		return wait, nil
	case req.ProviderID != "":
		return p.confirmGone(ctx, inputs, result), nil
	}
	return p.settle("No instance is known; waiting until one that may have been asked for would have shown."), nil
}

// neverLaunched reports whether no instance can ever have been requested: there is no recorded one, this process sent
// no Create whose outcome it does not know, and nothing says which provider to ask. The last means that the class
// does not exist, and a class that a Machine was launched from is held by its finalizer for as long as that Machine
// exists. A cache that does not have the class yet would look the same, so the class is looked for at the API server.
func (p *pass) neverLaunched(ctx context.Context, inputs resolve.Resolved) (bool, error) {
	m := p.machine
	if m.Spec.ProviderID != "" || m.Status.Instance != nil || inputs.Provider != "" ||
		!p.states.get(m).launch.ambiguousAt.IsZero() {
		return false, nil
	}
	if m.Spec.ClassRef == nil {
		return true, nil
	}
	class := &v1beta1.MachineClass{}
	key := client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClassRef.Name}
	switch err := p.Live.Get(ctx, key, class); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read MachineClass %s: %w", key, err)
	case len(resolve.OfClass(class).ProviderSpec) == 0:
		return true, nil // No instance can be made from it.
	}
	return false, errStale
}

// settle waits, where no instance was ever recorded, until a Create that may be under way at the cloud would have
// shown: two reads that find nothing, CreateSettle apart.
func (p *pass) settle(message string) progress {
	since := p.nothingToDeleteSince()
	left := since.Add(p.Cloud.CreateSettle()).Sub(p.now)
	if left <= 0 {
		return next
	}
	p.deleting(v1beta1.ReasonCreateSettling, message)
	p.requeueIn(left)
	return wait
}

func (p *pass) deletingBlocked(reason, message string) (transition bool) {
	before := ""
	if c := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionReady); c != nil {
		before = c.Reason
	}
	p.deleting(reason, message)
	return before != reason
}

// deleteFailed records an error of Delete and when the next try is due.
func (p *pass) deleteFailed(err error) {
	code := provider.CodeOf(err)
	c := deleteRetryPolicy(code)
	message := messageOf(err)
	var failures int32
	p.states.update(p.machine, func(m *machineState) {
		m.teardown.failures++
		failures = m.teardown.failures
	})
	if p.deletingBlocked(c.reason, message) {
		p.warn(c.reason, "Delete", message)
	}
	p.operation(v1beta1.OperationDelete, v1beta1.OperationProcessing, message, code)
	p.machine.Status.LastOperation.Attempts = failures
	p.requeueIn(c.backoff(failures, provider.RetryAfter(err), string(p.machine.UID)))
}

// deleteNode removes the Node of an instance that is gone, and no other of that name.
func (p *pass) deleteNode(ctx context.Context) (progress, error) {
	if p.notOurs {
		return next, nil
	}
	p.instanceGone = true
	if p.node == nil {
		// It may have registered in its instance's last moment. From now on it cannot.
		if proceed, err := p.findNodeToDelete(ctx); err != nil || !bool(proceed) {
			return wait, err
		}
	}
	if proceed, err := p.detachByForce(ctx); err != nil || !bool(proceed) {
		return wait, err
	}
	if p.node == nil {
		return next, nil
	}
	uid := p.node.UID
	err := p.Target.Nodes.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.node.Name}},
		client.Preconditions{UID: &uid})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return next, nil
	}
	return p.targetUnreachable(ctx, fmt.Errorf("delete node %s: %w", p.node.Name, err))
}

// release removes the token and then the finalizer: the last trace.
func (p *pass) release(ctx context.Context) (progress, error) {
	if p.Target != nil && !p.leftBehind && !p.notOurs && !p.isTrue(v1beta1.ConditionNodeHealthy) {
		// It may never have run; else its token went when it did.
		if err := p.dropToken(ctx); err != nil {
			if proceed, err := p.targetUnreachable(ctx, err); !bool(proceed) {
				return wait, err
			}
		}
	}
	err := p.removeFinalizer(ctx)
	if client.IgnoreNotFound(err) != nil {
		return wait, err
	}
	p.gone = true
	p.forget(client.ObjectKeyFromObject(p.machine))
	p.states.update(p.machine, func(m *machineState) { m.teardown.released = true })
	if err != nil {
		return next, nil // Released before, and said so: the cache was late.
	}
	p.ended(phaseTermination, p.terminationBegan())
	p.observeSpans()
	message := "The instance is gone."
	if id := p.machine.Spec.ProviderID; id != "" {
		message = fmt.Sprintf("Instance %s is gone.", id)
	}
	if p.notOurs {
		message = fmt.Sprintf("Instance %s was not adopted and stays as it is.", p.machine.Spec.ProviderID)
	}
	if p.leftBehind {
		message += " The target cluster could not be reached: a node and a bootstrap token of the machine may be left in it."
	}
	p.note("Deleted", "Delete", message)
	return next, nil
}

// removeFinalizer takes our finalizer off, unless somebody changed the Machine meanwhile: that is a conflict. What
// has to be patched is known, and not worth the comparison of two whole Machines.
func (p *pass) removeFinalizer(ctx context.Context) error {
	left := slices.DeleteFunc(slices.Clone(p.before.Finalizers), func(f string) bool {
		return f == v1beta1.MachineFinalizer
	})
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": p.before.ResourceVersion,
		"finalizers": left}})
	if err != nil {
		return fmt.Errorf("encode the patch of the finalizers: %w", err)
	}
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: p.machine.Namespace, Name: p.machine.Name}}
	if err := p.Client.Patch(ctx, m, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	return nil
}
