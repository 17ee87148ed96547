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

// nodeAnnotationOutdated is an annotation on a Node of an old revision. The value of this annotation lists what
// taintOutdated has added to the Node, separated by commas. A taint or annotation that is not in the list existed
// before and must not be removed. While the annotation exists, taintOutdated adds nothing again, even if an
// administrator has removed the taint.
const nodeAnnotationOutdated = "machinist.dev/outdated"

const (
	// appliedTaint and appliedScaleDownDisabled are possible values in the list of nodeAnnotationOutdated.
	appliedTaint             = "taint"
	appliedScaleDownDisabled = "scale-down-disabled"
	// scaleDownDisabled is the value of the annotation that prevents cluster-autoscaler from removing a Node.
	scaleDownDisabled  = "true"
	taintRetryInterval = 30 * time.Second
)

var outdatedTaint = corev1.Taint{Key: v1beta1.NodeTaintOutdated, Effect: corev1.TaintEffectPreferNoSchedule}

// taintOutdated adds a taint to the Node of a Machine that a rollout replaces. The scheduler then prefers other Nodes,
// so that pods do not move from one outdated machine to another. An annotation keeps cluster-autoscaler from removing
// the Node. If a write of the Node fails, the other steps still run. If an administrator removes the taint, it is not
// added again.
func (p *pass) taintOutdated(ctx context.Context) (progress, error) {
	if p.node == nil || p.unsupportedSchema(p.machine) != "" || machinestate.IsPaused(p.machine) {
		return next, nil
	}
	outdated, err := p.setIsOutdated(ctx)
	if err != nil {
		return onError, err
	}
	known, tainted := p.states.get(p.machine).registration.taintedNode, types.UID("")
	if outdated {
		if tainted = p.node.UID; tainted == known {
			return next, nil
		}
	}
	if p.writeOutdatedNode(ctx, withTaintFor(p.machine, p.node, outdated)) && tainted != known {
		p.states.update(p.machine, func(m *machineState) { m.registration.taintedNode = tainted })
	}
	return next, nil
}

func (p *pass) setIsOutdated(ctx context.Context) (bool, error) {
	owner, set := metav1.GetControllerOfNoCopy(p.machine), wiring.MachineSets()
	if owner == nil {
		return false, nil
	}
	err := p.Client.Get(ctx, client.ObjectKey{Namespace: p.machine.Namespace, Name: owner.Name}, set,
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

// writeOutdatedNode writes the changed Node and returns true if no write is left to do. Otherwise, writeOutdatedNode
// schedules another pass.
func (p *pass) writeOutdatedNode(ctx context.Context, after *corev1.Node) bool {
	if after == nil {
		return true
	}
	if p.outage() {
		p.requeueIn(targetPoll)
		return false
	}
	// The patch needs the optimistic lock, because the recorded list depends on what was on the Node before.
	err := p.Target.Nodes.Patch(ctx, after, client.MergeFromWithOptions(p.node.DeepCopy(),
		client.MergeFromWithOptimisticLock{}))
	switch {
	case err == nil:
		*p.node = *after
	case apierrors.IsNotFound(err): // The delete event follows.
	case apierrors.IsConflict(err):
		p.requeueIn(time.Second) // Usually, the kubelet has written the Node, and the cache will be updated soon.
	default:
		logf.FromContext(ctx).Info("Failed to taint or untaint the Node, will retry", "node", after.Name,
			"after", taintRetryInterval.String(), "cause", err.Error())
		p.requeueIn(taintRetryInterval)
	}
	return err == nil
}

func withTaintFor(m *v1beta1.Machine, node *corev1.Node, outdated bool) *corev1.Node {
	switch {
	case outdated:
		return withOutdatedTaint(node)
	case meta.IsStatusConditionFalse(m.Status.Conditions, v1beta1.ConditionUpToDate):
		return nil // The Machine comes from an outdated MachineSet and is not updated yet.
	}
	return withoutOutdatedTaint(node, m.Spec.Node)
}

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

// withoutOutdatedTaint returns the Node without the taint and annotation that withOutdatedTaint added, or nil if
// nothing was added. If the Machine's node template contains the annotation, the annotation stays.
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
