package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/wiring"
)

// nodeAnnotationOutdated is an annotation on a Node of an old revision. It lists what outdatedStep added, separated by
// commas. A taint or annotation that is not listed existed before, and stays. While the annotation exists, nothing is
// added again that was removed by hand.
const nodeAnnotationOutdated = "machinist.dev/outdated"

// Values in the list of nodeAnnotationOutdated.
const (
	appliedTaint             = "taint"
	appliedScaleDownDisabled = "scale-down-disabled"
)

// scaleDownDisabled is the value of the annotation that keeps cluster-autoscaler from removing a Node.
const scaleDownDisabled = "true"

// taintRetryInterval is the delay after which a failed write of the taint is retried.
const taintRetryInterval = 30 * time.Second

// outdatedStep taints the Node of a Machine during a rollout that replaces it, and annotates it for cluster-autoscaler.
// So the scheduler prefers other Nodes, pods do not move from one outdated machine to another, and the autoscaler does
// not remove the Node. The MachineSet declares whether its Machines are outdated (v1beta1.AnnotationOutdated).
//
// The taint is best effort: a Node that cannot be written does not delay the other steps.
type outdatedStep struct{ *pass }

// taintDecision is the desired state of a Node.
type taintDecision int

const (
	// leaveTaint means that nothing changes for now.
	leaveTaint taintDecision = iota
	// addTaint means that pods prefer other Nodes, and that cluster-autoscaler does not remove this one.
	addTaint
	// removeTaint means that everything that outdatedStep added is removed.
	removeTaint
)

// run taints the Node, or removes the taint.
func (s *outdatedStep) run(ctx context.Context) (progress, error) {
	if s.node == nil || s.unsupportedSchema(s.machine) != "" || machinestate.Paused(s.machine) {
		return next, nil
	}
	set, err := s.readSet(ctx)
	if err != nil {
		return onError, err
	}
	known := s.states.get(s.machine).registration.outdated
	outdated, after := known, (*corev1.Node)(nil)
	switch decideTaint(s.machine, set) {
	case addTaint:
		if known == s.node.UID {
			return next, nil // What was removed since then stays removed.
		}
		outdated, after = s.node.UID, withOutdatedTaint(s.node)
	case removeTaint:
		outdated, after = "", withoutOutdatedTaint(s.node, s.machine.Spec.Node)
	}
	if (after == nil || s.write(ctx, after)) && outdated != known {
		s.states.update(s.machine, func(m *machineState) { m.registration.outdated = outdated })
	}
	return next, nil
}

// readSet returns the metadata of the MachineSet that controls the Machine, nil if the cache does not have it.
func (s *outdatedStep) readSet(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	owner := metav1.GetControllerOfNoCopy(s.machine)
	if owner == nil {
		return nil, nil
	}
	set := wiring.MachineSets()
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.machine.Namespace, Name: owner.Name}, set,
		client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err), err == nil && set.UID != owner.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the set of the machine: %w", err)
	}
	return set, nil
}

// decideTaint returns the desired state of the Machine's Node. set is the MachineSet that controls the Machine, nil if
// it is not known.
func decideTaint(m *v1beta1.Machine, set *metav1.PartialObjectMetadata) taintDecision {
	switch {
	case metav1.GetControllerOfNoCopy(m) == nil:
		return removeTaint
	case set == nil, !set.DeletionTimestamp.IsZero():
		return leaveTaint // The Machine will be deleted, or an event of the set follows.
	case declaredOutdated(set):
		return addTaint
	case meta.IsStatusConditionFalse(m.Status.Conditions, v1beta1.ConditionUpToDate):
		return leaveTaint // The Machine was handed over by an outdated set, but is not updated yet.
	}
	return removeTaint
}

func declaredOutdated(set client.Object) bool {
	_, outdated := set.GetAnnotations()[v1beta1.AnnotationOutdated]
	return outdated
}

// write writes the Node and reports whether that is done. It schedules another pass if not.
func (s *outdatedStep) write(ctx context.Context, after *corev1.Node) bool {
	if s.outage() {
		s.requeueIn(targetPoll)
		return false
	}
	// What is removed later depends on what was there before, so the Node must be unchanged since it was read.
	err := s.Target.Nodes.Patch(ctx, after, client.MergeFromWithOptions(s.node.DeepCopy(),
		client.MergeFromWithOptimisticLock{}))
	switch {
	case err == nil:
		*s.node = *after
		return true
	case apierrors.IsNotFound(err): // The event of the deletion follows.
	case apierrors.IsConflict(err):
		s.requeueIn(time.Second) // Typically the kubelet wrote the Node. The cache will soon have that write.
	default:
		logf.FromContext(ctx).Info("Failed to taint or untaint the Node, will retry", "node", after.Name,
			"after", taintRetryInterval.String(), "cause", err.Error())
		s.requeueIn(taintRetryInterval)
	}
	return false
}

// withOutdatedTaint returns the Node with the taint and annotation of an old revision, or nil if there is nothing to
// do.
func withOutdatedTaint(node *corev1.Node) *corev1.Node {
	if _, done := node.Annotations[nodeAnnotationOutdated]; done || !node.DeletionTimestamp.IsZero() {
		return nil
	}
	out := node.DeepCopy()
	var ours []string
	if !slices.ContainsFunc(out.Spec.Taints, isOutdatedTaint) {
		out.Spec.Taints = append(out.Spec.Taints, corev1.Taint{Key: v1beta1.NodeTaintOutdated,
			Effect: corev1.TaintEffectPreferNoSchedule})
		ours = append(ours, appliedTaint)
	}
	if _, there := out.Annotations[v1beta1.NodeAnnotationScaleDownDisabled]; !there {
		set(&out.Annotations, v1beta1.NodeAnnotationScaleDownDisabled, scaleDownDisabled)
		ours = append(ours, appliedScaleDownDisabled)
	}
	set(&out.Annotations, nodeAnnotationOutdated, strings.Join(ours, ","))
	return out
}

// withoutOutdatedTaint returns the Node without the taint and annotation that withOutdatedTaint added, or nil if there
// is nothing to do. An annotation of the Machine's node template stays.
func withoutOutdatedTaint(node *corev1.Node, wanted v1beta1.NodeTemplate) *corev1.Node {
	listed, done := node.Annotations[nodeAnnotationOutdated]
	if !done {
		return nil
	}
	out := node.DeepCopy()
	delete(out.Annotations, nodeAnnotationOutdated)
	for ours := range strings.SplitSeq(listed, ",") {
		switch ours {
		case appliedTaint:
			out.Spec.Taints = slices.DeleteFunc(out.Spec.Taints, isOutdatedTaint)
		case appliedScaleDownDisabled:
			_, keep := wanted.Annotations[v1beta1.NodeAnnotationScaleDownDisabled]
			if !keep && out.Annotations[v1beta1.NodeAnnotationScaleDownDisabled] == scaleDownDisabled {
				delete(out.Annotations, v1beta1.NodeAnnotationScaleDownDisabled)
			}
		}
	}
	return out
}

func isOutdatedTaint(t corev1.Taint) bool {
	return t.Key == v1beta1.NodeTaintOutdated && t.Effect == corev1.TaintEffectPreferNoSchedule
}
