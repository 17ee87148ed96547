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
	"k8s.io/apimachinery/pkg/types"
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

const (
	// appliedTaint and appliedScaleDownDisabled are values in the list of nodeAnnotationOutdated.
	appliedTaint             = "taint"
	appliedScaleDownDisabled = "scale-down-disabled"
	// scaleDownDisabled is the value of the annotation that keeps cluster-autoscaler from removing a Node.
	scaleDownDisabled = "true"
	// taintRetryInterval is the delay after which a failed write of the taint is retried.
	taintRetryInterval = 30 * time.Second
)

var outdatedTaint = corev1.Taint{Key: v1beta1.NodeTaintOutdated, Effect: corev1.TaintEffectPreferNoSchedule}

// outdatedStep taints the Node of a Machine during a rollout that replaces it, and annotates it for cluster-autoscaler.
// So the scheduler prefers other Nodes, pods do not move from one outdated machine to another, and the autoscaler does
// not remove the Node. A Node that cannot be written delays no other step.
type outdatedStep struct{ *pass }

// run adds or removes the taint. It adds the taint once, so that what is removed by hand stays removed.
func (s *outdatedStep) run(ctx context.Context) (progress, error) {
	if s.node == nil || s.unsupportedSchema(s.machine) != "" || machinestate.Paused(s.machine) {
		return next, nil
	}
	outdated, err := s.setIsOutdated(ctx)
	if err != nil {
		return onError, err
	}
	known, tainted := s.states.get(s.machine).registration.tainted, types.UID("")
	if outdated {
		if tainted = s.node.UID; tainted == known {
			return next, nil
		}
	}
	if s.write(ctx, withTaintFor(s.machine, s.node, outdated)) && tainted != known {
		s.states.update(s.machine, func(m *machineState) { m.registration.tainted = tainted })
	}
	return next, nil
}

// setIsOutdated reports whether the Machine's MachineSet is declared outdated.
func (s *outdatedStep) setIsOutdated(ctx context.Context) (bool, error) {
	owner, set := metav1.GetControllerOfNoCopy(s.machine), wiring.MachineSets()
	if owner == nil {
		return false, nil
	}
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.machine.Namespace, Name: owner.Name}, set,
		client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read the set of the machine: %w", err)
	}
	return err == nil && set.UID == owner.UID && declaredOutdated(set), nil
}

func declaredOutdated(set client.Object) bool {
	_, outdated := set.GetAnnotations()[v1beta1.AnnotationOutdated]
	return outdated
}

// write writes the Node, if there is anything to write, and reports whether that is done. If not, it schedules another
// pass.
func (s *outdatedStep) write(ctx context.Context, after *corev1.Node) bool {
	if after == nil {
		return true
	}
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
	case apierrors.IsNotFound(err): // The event of the deletion follows.
	case apierrors.IsConflict(err):
		s.requeueIn(time.Second) // Typically the kubelet wrote the Node. The cache will soon have that write.
	default:
		logf.FromContext(ctx).Info("Failed to taint or untaint the Node, will retry", "node", after.Name,
			"after", taintRetryInterval.String(), "cause", err.Error())
		s.requeueIn(taintRetryInterval)
	}
	return err == nil
}

// withTaintFor returns the Node of the Machine as it should be, or nil if there is nothing to do.
func withTaintFor(m *v1beta1.Machine, node *corev1.Node, outdated bool) *corev1.Node {
	switch {
	case outdated:
		return withOutdatedTaint(node)
	case meta.IsStatusConditionFalse(m.Status.Conditions, v1beta1.ConditionUpToDate):
		return nil // An outdated set handed the Machine over, but it is not updated yet.
	}
	return withoutOutdatedTaint(node, m.Spec.Node)
}

// withOutdatedTaint returns the Node with the taint and annotation of an old revision, or nil if it had them already.
func withOutdatedTaint(node *corev1.Node) *corev1.Node {
	if _, done := node.Annotations[nodeAnnotationOutdated]; done || !node.DeletionTimestamp.IsZero() {
		return nil
	}
	out := node.DeepCopy()
	var ours []string
	if findTaint(out.Spec.Taints, outdatedTaint) < 0 {
		out.Spec.Taints = append(out.Spec.Taints, outdatedTaint)
		ours = append(ours, appliedTaint)
	}
	if _, there := out.Annotations[v1beta1.NodeAnnotationScaleDownDisabled]; !there {
		set(&out.Annotations, v1beta1.NodeAnnotationScaleDownDisabled, scaleDownDisabled)
		ours = append(ours, appliedScaleDownDisabled)
	}
	set(&out.Annotations, nodeAnnotationOutdated, strings.Join(ours, ","))
	return out
}

// withoutOutdatedTaint returns the Node without what withOutdatedTaint added, or nil if it added nothing. An annotation
// of the Machine's node template stays.
func withoutOutdatedTaint(node *corev1.Node, template v1beta1.NodeTemplate) *corev1.Node {
	listed, done := node.Annotations[nodeAnnotationOutdated]
	if !done {
		return nil
	}
	out, ours := node.DeepCopy(), strings.Split(listed, ",")
	delete(out.Annotations, nodeAnnotationOutdated)
	if slices.Contains(ours, appliedTaint) {
		out.Spec.Taints = slices.DeleteFunc(out.Spec.Taints, func(t corev1.Taint) bool { return sameTaint(t, outdatedTaint) })
	}
	_, keep := template.Annotations[v1beta1.NodeAnnotationScaleDownDisabled]
	if slices.Contains(ours, appliedScaleDownDisabled) && !keep &&
		out.Annotations[v1beta1.NodeAnnotationScaleDownDisabled] == scaleDownDisabled {
		delete(out.Annotations, v1beta1.NodeAnnotationScaleDownDisabled)
	}
	return out
}
