package controllermanager

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// ReadyCondition returns the condition Ready of a Node, or nil if the condition is missing.
func ReadyCondition(node *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return nil
	}
	return &node.Status.Conditions[i]
}

// nodeChoices returns the actions of the node lifecycle controller. For a silent Node, the controller sets the
// conditions to Unknown and the pods to not ready. Then the controller updates the taints of the Node to match the
// conditions, with one update for NoSchedule and one for NoExecute.
func (m Manager) nodeChoices(node *corev1.Node, pods []*corev1.Pod) (out []Choice) {
	ready := ReadyCondition(node)
	if (ready == nil || ready.Status != corev1.ConditionUnknown) && m.IsSilent(node) {
		out = append(out, newChoice(func() error {
			return m.patchStatus(NodeController, node,
				m.withUnknownConditions(node))
		},
			"node controller sets conditions of node %s to Unknown", node.Name))
	}
	for _, taints := range [][]corev1.Taint{m.noSchedule(node), m.noExecute(node)} {
		if !slices.Equal(taints, node.Spec.Taints) {
			changed := node.DeepCopy()
			changed.Spec.Taints = taints
			out = append(out, newChoice(func() error { return m.patch(NodeController, node, changed, true) },
				"node controller updates taints of node %s", node.Name))
		}
	}
	if ready == nil || ready.Status != corev1.ConditionUnknown {
		return out // The kubelet reports the status of its pods even while its node is not ready.
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
		out = append(out, newChoice(func() error { return m.patchStatus(NodeController, p, changed) },
			"node controller sets pod %s to not ready", p.Name))
	}
	return out
}

func (m Manager) withUnknownConditions(node *corev1.Node) *corev1.Node {
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
		if old := changed.Status.Conditions[i]; old.Status != corev1.ConditionUnknown {
			c.Reason, c.Message = "NodeStatusUnknown", "Kubelet stopped posting node status."
			c.LastHeartbeatTime = old.LastHeartbeatTime
			changed.Status.Conditions[i] = c
		}
	}
	return changed
}

var conditionTaints = []struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
	key       string
}{
	{corev1.NodeDiskPressure, corev1.ConditionTrue, corev1.TaintNodeDiskPressure},
	{corev1.NodeMemoryPressure, corev1.ConditionTrue, corev1.TaintNodeMemoryPressure},
	{corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.TaintNodeNetworkUnavailable},
	{corev1.NodeReady, corev1.ConditionFalse, corev1.TaintNodeNotReady},
	{corev1.NodePIDPressure, corev1.ConditionTrue, corev1.TaintNodePIDPressure},
	{corev1.NodeReady, corev1.ConditionUnknown, corev1.TaintNodeUnreachable},
}

type wantedTaint struct {
	key    string
	wanted bool
}

func (m Manager) noSchedule(node *corev1.Node) []corev1.Taint {
	wanted := make([]wantedTaint, 0, len(conditionTaints)+1)
	for _, t := range conditionTaints {
		wanted = append(wanted, wantedTaint{t.key, slices.ContainsFunc(node.Status.Conditions,
			func(c corev1.NodeCondition) bool { return c.Type == t.condition && c.Status == t.status })})
	}
	wanted = append(wanted, wantedTaint{corev1.TaintNodeUnschedulable, node.Spec.Unschedulable})
	return m.withTaints(node.Spec.Taints, corev1.TaintEffectNoSchedule, wanted)
}

func (m Manager) noExecute(node *corev1.Node) []corev1.Taint {
	ready := ReadyCondition(node)
	if ready == nil {
		return node.Spec.Taints
	}
	return m.withTaints(node.Spec.Taints, corev1.TaintEffectNoExecute, []wantedTaint{
		{corev1.TaintNodeNotReady, ready.Status == corev1.ConditionFalse},
		{corev1.TaintNodeUnreachable, ready.Status == corev1.ConditionUnknown},
	})
}

// withTaints adds the taints with the field wanted, and removes the other taints in the list wanted. All of these
// taints have the given effect. To save time, withTaints copies the taints only if they change.
func (m Manager) withTaints(taints []corev1.Taint, effect corev1.TaintEffect, wanted []wantedTaint) []corev1.Taint {
	has := func(key string) bool {
		return slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == effect })
	}
	if !slices.ContainsFunc(wanted, func(w wantedTaint) bool { return w.wanted != has(w.key) }) {
		return taints
	}
	out := slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool {
		return t.Effect == effect && slices.Contains(wanted, wantedTaint{t.Key, false})
	})
	for _, w := range wanted {
		if w.wanted && !has(w.key) {
			now := m.now()
			out = append(out, corev1.Taint{Key: w.key, Effect: effect, TimeAdded: &now})
		}
	}
	return out
}
