package main

// onlyReady has kubelets report nothing but whether they are ready, withoutTaints has no controller taint Nodes by
// their conditions: so the world was before.
var (
	onlyReady = &mutant{file: "test/simulation/hosts.go",
		from: "[]corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure,\n		corev1.NodePIDPressure, corev1.NodeReady}",
		to:   "[]corev1.NodeConditionType{corev1.NodeReady}"}
	withoutTaints = &mutant{file: "test/controllermanager/nodes.go",
		from: "[][]corev1.Taint{m.noSchedule(node), m.noExecute(node)} {",
		to:   "[][]corev1.Taint{m.noSchedule(node), m.noExecute(node)}[:0] {"}
	plainNodes = []*mutant{onlyReady, withoutTaints}
)

// fidelityMutants are bugs that show where Nodes are looked after as a real kube-controller-manager and real kubelets
// do.
func fidelityMutants() []mutant {
	return []mutant{
		{
			// A kubelet reports more than one condition, in any order.
			name: "any-condition-taken-for-ready", file: "internal/machine/registration.go",
			from:     "		if node.Status.Conditions[i].Type == corev1.NodeReady {\n			return &node",
			to:       "		if node.Status.Conditions[i].Type != \"\" {\n			return &node",
			scenario: "create", finds: "settled, but|after the last disturbance|not settled",
			plain: plainNodes,
		},
		{
			name: "any-condition-of-an-orphans-node", file: "internal/safety/orphans/nodes.go",
			from:     "		if c.Type == corev1.NodeReady {\n			return c\n",
			to:       "		if c.Type != \"\" {\n			return c\n",
			scenario: "machines-lost", finds: "orphans: ", plain: plainNodes,
		},
		{
			// The node lifecycle controller puts its taints back.
			name: "taints-of-others-dropped", file: "internal/machine/node_template_former.go",
			from:     "		if slices.Contains(applied.Taints, taintName(t)) && find(want, t) < 0 {",
			to:       "		if find(want, t) < 0 {",
			scenario: "remediate", finds: ".", plain: plainNodes,
		},
	}
}
