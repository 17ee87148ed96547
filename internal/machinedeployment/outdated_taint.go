package machinedeployment

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/rollout/handover"
)

// nodeAnnotationOutdated on a Node of an old revision lists the marks that were put there on our account, separated by
// commas. What it does not list was a person's before and stays; a mark that somebody takes off is not put there again
// for as long as it is there.
const nodeAnnotationOutdated = "machinist.dev/outdated"

// Marks, as nodeAnnotationOutdated lists them.
const (
	appliedTaint             = "taint"
	appliedScaleDownDisabled = "scale-down-disabled"
)

// scaleDownStopped is the value of the annotation that keeps cluster-autoscaler from removing a Node.
const scaleDownDisabled = "true"

// marking says what the marks of a machine's Node have to be.
type taintDecision int

const (
	// asTheyAre: whatever is there may stay for now.
	leaveAsIs taintDecision = iota
	// marked: pods shall prefer other Nodes, and nobody else remove this one.
	tainted
	// unmarked: nothing of ours shall be there.
	untainted
)

// marking decides for a machine of set i. With on false, marks are only taken off.
func (h history) taintDecision(d *v1beta1.MachineDeployment, on bool, i int, m *v1beta1.Machine) taintDecision {
	_, frozen := d.Labels[v1beta1.LabelFreeze]
	switch {
	case h.current < 0:
		// The set of the wanted template comes first: until then nothing is old.
		return leaveAsIs
	case !m.DeletionTimestamp.IsZero(), !h.sets[i].DeletionTimestamp.IsZero():
		return leaveAsIs // the Node goes, and its marks with it
	case d.Spec.Paused, frozen:
		return leaveAsIs // the rollout stands still, and is not over
	case !on, !exchanges(d):
		return untainted
	case i != h.current:
		return tainted
	case handover.Updating(m):
		return leaveAsIs // it has a new owner, and is not new yet
	}
	return untainted
}

// exchanges reports whether the deployment itself brings machines of old revisions to the new one, some after others.
// Where it waits for people, for weeks perhaps, or all machines go at once, a mark helps nobody.
func exchanges(d *v1beta1.MachineDeployment) bool {
	switch d.Spec.Strategy.TypeOrDefault() {
	case v1beta1.StrategyRollingUpdate:
		return true
	case v1beta1.StrategyInPlace:
		return d.Spec.Strategy.OrchestrationOrDefault() != v1beta1.OrchestrationManual
	}
	return false
}

// withMarks returns the Node with the marks of an old revision, or nil if there is nothing to do.
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
		out.Spec.Taints = append(out.Spec.Taints, corev1.Taint{Key: v1beta1.NodeTaintOutdated, Effect: corev1.TaintEffectPreferNoSchedule})
		ours = append(ours, appliedTaint)
	}
	if _, set := out.Annotations[v1beta1.NodeAnnotationScaleDownDisabled]; !set {
		out.Annotations[v1beta1.NodeAnnotationScaleDownDisabled] = scaleDownDisabled
		ours = append(ours, appliedScaleDownDisabled)
	}
	out.Annotations[nodeAnnotationOutdated] = strings.Join(ours, ",")
	return out
}

// withoutMarks returns the Node without the marks that withMarks put there, or nil if there is nothing to do. What the
// machine itself wants on its Node stays.
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
