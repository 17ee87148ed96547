package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/wording"
)

// findNode finds the Node. The Node may have registered a moment ago and may already have pods. Therefore, only the API
// server can confirm that there is no Node.
func (r *removal) findNode(ctx context.Context) (progress, error) {
	if r.Target == nil || r.notOurs {
		return next, nil
	}
	if proceed, unreachable := r.waitWhileUnreachable(ctx); unreachable {
		return proceed, nil
	}
	if r.machine.Spec.ProviderID != "" {
		found, err := r.findCandidate(ctx)
		switch {
		case err != nil:
			return r.nodeUnknown(ctx, err)
		case len(found.claimants) > 0:
			return r.chooseClaimant(found), nil
		case found.conflict != "" && !found.belongsToOther:
			return next, nil // The Node belongs to another machine, or its machine is unknown.
		case found.node != nil || found.otherID != nil:
			r.node = cmp.Or(found.node, found.otherID)
			return next, nil
		}
	}
	name := index.NodeName(r.machine)
	if name == "" {
		return next, nil
	}
	node := &corev1.Node{}
	switch err := r.Target.LiveClient.Get(ctx, client.ObjectKey{Name: name}, node); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return r.targetUnreachable(ctx, fmt.Errorf("read node %s: %w", name, err))
	case node.Spec.ProviderID != "" && node.Spec.ProviderID == r.machine.NodeProviderID():
		conflict, err := r.conflictOf(ctx, node)
		if err != nil {
			return r.nodeUnknown(ctx, err)
		}
		if conflict == "" {
			r.node = node
		}
	default:
		found, err := r.decideByName(ctx, node)
		if err != nil {
			return r.targetUnreachable(ctx, err)
		}
		r.node = cmp.Or(found.node, found.otherID)
	}
	// The target cluster has answered, so the next failure starts a new series.
	r.states.update(r.machine, func(m *machineState) { m.teardown.targetUnreachableSince = time.Time{} })
	return next, nil
}

// nodeUnknown stops the deletion because it is unknown which Node belongs to the Machine. A force-deletion continues
// without the Node.
func (r *removal) nodeUnknown(ctx context.Context, err error) (progress, error) {
	if _, unanswered := errors.AsType[*unansweredError](err); !unanswered {
		return r.targetUnreachable(ctx, err)
	}
	if forced(r.machine) {
		return next, nil
	}
	inputs, proceed, resolveErr := r.resolveForDeletion(ctx)
	if resolveErr != nil || proceed != next {
		return proceed, resolveErr
	}
	return r.deleteFailed(err, inputs), nil
}

// chooseClaimant chooses the Node that is drained and deleted with the machine if several Nodes have its provider ID.
// After a rename of the host, the old Node remains, but its kubelet no longer updates its status. Therefore, a Node
// whose kubelet updates its status is preferred to the newest Node. If several kubelets update their Nodes, each of
// them may run pods. An administrator then has to decide which Node is wrong.
func (r *removal) chooseClaimant(found candidate) progress {
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
	if reporting > 1 && !forced(r.machine) && !r.instanceGone {
		message := found.conflict +
			" More than one of these Nodes has a running kubelet. Delete the wrong Node, or annotate the machine " +
			"with " + v1beta1.AnnotationForceDelete + "."
		before := meta.FindStatusCondition(r.original.Status.Conditions, v1beta1.ConditionDeleting)
		r.reportDeleting(v1beta1.ReasonNodeConflict, message)
		if before == nil || before.Reason != v1beta1.ReasonNodeConflict {
			r.warn(v1beta1.ReasonNodeConflict, "Delete", message)
		}
		return onMachine | onNode | r.after(drainBackstop)
	}
	r.node = chosen.DeepCopy()
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
func (r *removal) targetUnreachable(ctx context.Context, err error) (progress, error) {
	if r.leftBehind || forced(r.machine) && !r.instanceGone {
		return next, nil
	}
	failed, refused := r.now.Sub(r.targetFailsSince()), apierrors.IsUnauthorized(err)
	if forced(r.machine) && failed >= cleanupPatience || failed >= targetPatience && !refused && r.neverJoined(ctx) {
		r.leftBehind = true
		return next, nil
	}
	if refused {
		r.reportDeleting(v1beta1.ReasonTargetCredentialsRefused, "The target cluster refuses the provider's credentials: "+
			wording.Truncate(err.Error(), 256))
		return onError, err
	}
	r.reportDeleting(v1beta1.ReasonTargetUnreachable, "The target cluster cannot be reached: "+wording.Truncate(err.Error(), 256))
	return onError, err
}

// targetFailsSince returns the start of the current series of failed calls to the target cluster. The first failure
// starts a series. The deletion of the instance and each outage of the target cluster end the series, so that later
// failures start a new series.
func (r *removal) targetFailsSince() (since time.Time) {
	r.states.update(r.machine, func(m *machineState) {
		failing := &m.teardown.targetUnreachableSince
		if r.instanceGone {
			failing = &m.teardown.cleanupFailsSince
		}
		if failing.IsZero() || r.Reachability != nil && outageEndedAfter(r.Reachability, *failing) {
			*failing = r.now
		}
		since = *failing
	})
	return since
}

// neverJoined reports whether the API server confirms that the Machine has no Node. A failed read proves nothing,
// because the machine may have joined although this process cannot read the Node.
func (r *removal) neverJoined(ctx context.Context) bool {
	if r.machine.Status.NodeRef != nil || r.node != nil {
		return false
	}
	name := index.NodeName(r.machine)
	return name == "" || apierrors.IsNotFound(r.Target.LiveClient.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{}))
}

// deleteNode deletes the Node of an instance that is gone. If another Node now has the same name, that Node is not
// deleted.
func (r *removal) deleteNode(ctx context.Context) (progress, error) {
	if r.notOurs || r.instanceLeft {
		return next, nil
	}
	r.instanceGone = true
	if r.node == nil {
		// The Node may have registered just before the instance was deleted. A deleted instance cannot register another
		// Node.
		if proceed, err := r.findNode(ctx); err != nil || proceed != next {
			return proceed, err
		}
	}
	if proceed, err := r.detachByForce(ctx); err != nil || proceed != next {
		return proceed, err
	}
	if r.node == nil {
		return next, nil
	}
	uid := r.node.UID
	err := r.Target.Nodes.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.node.Name}},
		client.Preconditions{UID: &uid})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return next, nil
	}
	return r.targetUnreachable(ctx, fmt.Errorf("delete node %s: %w", r.node.Name, err))
}

// answerTimeout is how long a deletion waits for an answer of the target cluster before it continues without this
// cluster.
const answerTimeout = 2 * time.Second

// waitWhileUnreachable delays a deletion while the target cluster is unreachable. A force-deletion does not wait. If a
// machine never had a Node, its deletion waits only for targetPatience, and then sends one request. If the cluster
// answers, the outage will soon be over, and the deletion waits for this. If the cluster rejects the credentials, the
// deletion must always wait. Machines can still join, and the controller cannot see which of them have pods.
func (r *removal) waitWhileUnreachable(ctx context.Context) (proceed progress, unreachable bool) {
	if r.Target == nil || r.Reachability == nil {
		return next, false
	}
	since, unreachable := r.Reachability.TargetUnreachable()
	if !unreachable {
		return next, false
	}
	// Each deletion waits for the whole of targetPatience, even if the outage has lasted longer. The outage may end soon,
	// and then the resources of the Machine in the target cluster can be found and deleted.
	left := targetPatience - min(r.now.Sub(since), r.now.Sub(r.targetFailsSince()))
	refuses := r.Reachability.TargetRefuses()
	neverJoined := r.machine.Status.NodeRef == nil && !refuses
	if forced(r.machine) || neverJoined && left <= 0 && !r.targetAnswers(ctx) {
		r.leftBehind = true
		return next, true
	}
	r.requeueIn(targetPoll)
	if neverJoined && left > 0 {
		r.requeueIn(left)
	}
	if refuses {
		r.reportDeleting(v1beta1.ReasonTargetCredentialsRefused,
			fmt.Sprintf("Waiting for the target cluster, which has refused the provider's credentials since %s: it is not known which pods run on the node. Renew the kubeconfig of the target cluster.", since.UTC().Format(time.RFC3339)))
		return atTime, true
	}
	r.reportDeleting(v1beta1.ReasonTargetUnreachable, fmt.Sprintf("Waiting for the target cluster, which has been unreachable since %s.",
		since.UTC().Format(time.RFC3339)))
	return atTime, true
}

func outageEndedAfter(reach Reachability, since time.Time) bool {
	past, _ := reach.TargetOutages()
	return len(past) > 0 && past[len(past)-1].To.After(since)
}

func (r *removal) targetAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	name := cmp.Or(index.NodeName(r.machine), r.machine.Name)
	return client.IgnoreNotFound(r.Target.LiveClient.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{})) == nil
}
