package controllermanager

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Ready returns a Node's condition Ready, nil if it has none.
func Ready(node *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return nil
	}
	return &node.Status.Conditions[i]
}

// nodeChoices is the node lifecycle controller: a silent Node's conditions become unknown, its pods unready, and
// taints follow conditions. The taints of the two effects are written by two loops.
func (m Manager) nodeChoices(node *corev1.Node, pods []*corev1.Pod) (out []Choice) {
	ready := Ready(node)
	if (ready == nil || ready.Status != corev1.ConditionUnknown) && m.Silent(node) {
		out = append(out, choose(func() error { return m.patchStatus(NodeController, node, m.unheardOf(node)) },
			"node %s is silent", node.Name))
	}
	for _, taints := range [][]corev1.Taint{m.noSchedule(node), m.noExecute(node)} {
		if !slices.Equal(taints, node.Spec.Taints) {
			changed := node.DeepCopy()
			changed.Spec.Taints = taints
			out = append(out, choose(func() error { return m.patch(NodeController, node, changed, true) },
				"taints of node %s follow its conditions", node.Name))
		}
	}
	if ready == nil || ready.Status != corev1.ConditionUnknown {
		return out // What a kubelet says of its pods counts, also where it says that its node is not ready.
	}
	for _, p := range pods {
		i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status != corev1.ConditionFalse
		})
		if i < 0 {
			continue
		}
		changed := p.DeepCopy()
		changed.Status.Conditions[i].Status = corev1.ConditionFalse
		changed.Status.Conditions[i].LastTransitionTime = m.now()
		out = append(out, choose(func() error { return m.patchStatus(NodeController, p, changed) },
			"node controller takes for unready pod %s", p.Name))
	}
	return out
}

// unheardOf returns a Node with all that its kubelet reported unknown.
func (m Manager) unheardOf(node *corev1.Node) *corev1.Node {
	changed := node.DeepCopy()
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
		corev1.NodePIDPressure} {
		c := corev1.NodeCondition{Type: kind, Status: corev1.ConditionUnknown, LastTransitionTime: m.now()}
		i := slices.IndexFunc(changed.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
		if i < 0 {
			c.Reason, c.Message = "NodeStatusNeverUpdated", "Kubelet never posted node status."
			c.LastHeartbeatTime = changed.CreationTimestamp
			changed.Status.Conditions = append(changed.Status.Conditions, c)
			continue
		}
		if was := changed.Status.Conditions[i]; was.Status != corev1.ConditionUnknown {
			c.Reason, c.Message = "NodeStatusUnknown", "Kubelet stopped posting node status."
			c.LastHeartbeatTime = was.LastHeartbeatTime
			changed.Status.Conditions[i] = c
		}
	}
	return changed
}

// conditionTaints are the taints that stand for conditions, by the status that a condition has then.
var conditionTaints = []struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
	key       string
}{
	{corev1.NodeReady, corev1.ConditionFalse, corev1.TaintNodeNotReady},
	{corev1.NodeReady, corev1.ConditionUnknown, corev1.TaintNodeUnreachable},
	{corev1.NodeMemoryPressure, corev1.ConditionTrue, corev1.TaintNodeMemoryPressure},
	{corev1.NodeDiskPressure, corev1.ConditionTrue, corev1.TaintNodeDiskPressure},
	{corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.TaintNodeNetworkUnavailable},
	{corev1.NodePIDPressure, corev1.ConditionTrue, corev1.TaintNodePIDPressure},
}

// noSchedule returns a Node's taints with those that keep new pods off it while a condition holds or it is cordoned.
func (m Manager) noSchedule(node *corev1.Node) []corev1.Taint {
	wanted := map[string]bool{corev1.TaintNodeUnschedulable: node.Spec.Unschedulable}
	for _, t := range conditionTaints {
		is := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == t.condition && c.Status == t.status
		})
		wanted[t.key] = wanted[t.key] || is
	}
	return m.tainted(node.Spec.Taints, corev1.TaintEffectNoSchedule, wanted)
}

// noExecute returns a Node's taints with those that end pods on a node that is not ready. A Node that has never
// reported has none.
func (m Manager) noExecute(node *corev1.Node) []corev1.Taint {
	ready := Ready(node)
	if ready == nil {
		return node.Spec.Taints
	}
	return m.tainted(node.Spec.Taints, corev1.TaintEffectNoExecute, map[string]bool{
		corev1.TaintNodeNotReady:    ready.Status == corev1.ConditionFalse,
		corev1.TaintNodeUnreachable: ready.Status == corev1.ConditionUnknown,
	})
}

// tainted returns the taints with those of the keys that are wanted with an effect, and without the others of them.
func (m Manager) tainted(taints []corev1.Taint, effect corev1.TaintEffect, wanted map[string]bool) []corev1.Taint {
	wanted = clone(wanted)
	var out []corev1.Taint
	for _, t := range taints {
		is, known := wanted[t.Key]
		if known && t.Effect == effect && !is {
			continue
		}
		if t.Effect == effect {
			delete(wanted, t.Key)
		}
		out = append(out, t)
	}
	for _, key := range sorted(wanted) {
		now := m.now()
		out = append(out, corev1.Taint{Key: key, Effect: effect, TimeAdded: &now})
	}
	if len(out) == len(taints) && slices.Equal(out, taints) {
		return taints
	}
	return out
}

func clone(in map[string]bool) map[string]bool {
	out := map[string]bool{}
	for k, v := range in {
		out[k] = v
	}
	return out
}

// sorted returns the keys that are true.
func sorted(in map[string]bool) (keys []string) {
	for k, is := range in {
		if is {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, strings.Compare)
	return keys
}
