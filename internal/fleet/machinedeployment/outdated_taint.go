package machinedeployment

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
)

// nodeAnnotationOutdated is an annotation on a Node of an old revision. It lists what the NodeTainter added, separated
// by commas. A taint or annotation that is not listed existed before, and stays. While the annotation exists, the
// NodeTainter does not add a taint or annotation again that was removed by hand.
const nodeAnnotationOutdated = "machinist.dev/outdated"

// Values in the list of nodeAnnotationOutdated.
const (
	appliedTaint             = "taint"
	appliedScaleDownDisabled = "scale-down-disabled"
)

// scaleDownDisabled is the value of the annotation that keeps cluster-autoscaler from removing a Node.
const scaleDownDisabled = "true"

// taintDecision is the desired state of a machine's Node.
type taintDecision int

const (
	// leaveAsIs means that nothing changes for now.
	leaveAsIs taintDecision = iota
	// tainted means that pods prefer other Nodes, and that cluster-autoscaler does not remove the tainted Node.
	tainted
	// untainted means that everything that the NodeTainter added is removed.
	untainted
)

// taintDecision returns the desired state of the Node of a machine of set i. If on is false, taints are only removed.
func (h history) taintDecision(d *v1beta1.MachineDeployment, on bool, i int, m *v1beta1.Machine) taintDecision {
	_, frozen := d.Labels[v1beta1.LabelFreeze]
	switch {
	case h.current < 0:
		// Until the set of the wanted template exists, no revision is old.
		return leaveAsIs
	case !m.DeletionTimestamp.IsZero(), !h.sets[i].DeletionTimestamp.IsZero():
		return leaveAsIs // The Node will be deleted.
	case d.Spec.Paused, frozen:
		return leaveAsIs // The rollout is stopped, but not complete.
	case !on, !replacesStepByStep(d):
		return untainted
	case i != h.current:
		return tainted
	case handover.Updating(m):
		return leaveAsIs // The machine was handed over, but is not updated yet.
	}
	return untainted
}

// replacesStepByStep reports whether the deployment replaces or updates machines of old revisions step by step. A taint
// is of no use if the deployment waits for an administrator, perhaps for weeks, or deletes all machines at once.
func replacesStepByStep(d *v1beta1.MachineDeployment) bool {
	switch d.Spec.Strategy.TypeOrDefault() {
	case v1beta1.StrategyRollingUpdate:
		return true
	case v1beta1.StrategyInPlace:
		return d.Spec.Strategy.OrchestrationOrDefault() != v1beta1.OrchestrationManual
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
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	var ours []string
	if !slices.ContainsFunc(out.Spec.Taints, isOutdatedTaint) {
		out.Spec.Taints = append(out.Spec.Taints, corev1.Taint{Key: v1beta1.NodeTaintOutdated,
			Effect: corev1.TaintEffectPreferNoSchedule})
		ours = append(ours, appliedTaint)
	}
	if _, set := out.Annotations[v1beta1.NodeAnnotationScaleDownDisabled]; !set {
		out.Annotations[v1beta1.NodeAnnotationScaleDownDisabled] = scaleDownDisabled
		ours = append(ours, appliedScaleDownDisabled)
	}
	out.Annotations[nodeAnnotationOutdated] = strings.Join(ours, ",")
	return out
}

// withoutOutdatedTaint returns the Node without the taint and annotation that withOutdatedTaint added, or nil if there
// is nothing to do. Taints and annotations of the machine's own template stay.
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
			if !slices.ContainsFunc(wanted.Taints, isOutdatedTaint) {
				out.Spec.Taints = slices.DeleteFunc(out.Spec.Taints, isOutdatedTaint)
			}
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
