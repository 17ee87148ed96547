package main

// onlyReady makes kubelets report only the condition Ready. withoutTaints removes the controller that taints Nodes
// according to their conditions. If both mutants are planted, the simulation contains no realistic node conditions and
// no taints for these conditions.
var (
	onlyReady = &mutant{file: "test/simulation/hosts.go",
		oldText: "[]corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure,\n		corev1.NodePIDPressure, corev1.NodeReady}",
		newText: "[]corev1.NodeConditionType{corev1.NodeReady}"}
	withoutTaints = &mutant{file: "test/controllermanager/nodes.go",
		oldText: "[][]corev1.Taint{m.noSchedule(node), m.noExecute(node)} {",
		newText: "[][]corev1.Taint{m.noSchedule(node), m.noExecute(node)}[:0] {"}
	simpleNodes = []*mutant{onlyReady, withoutTaints}
)

// dimensionMutants returns bugs that are found only by newer features of the simulation: corrupted objects, incidents,
// or realistic kubelets and a realistic kube-controller-manager.
func dimensionMutants() []mutant {
	return []mutant{
		{
			name: "cloud-that-denies-all-is-believed", quick: true, file: "internal/machine/serve_absence_witness.go",
			oldText: "	for _, m := range witnesses {", newText: "	for _, m := range witnesses[:0] {",
			scenario: "cloud-forgets", finds: "vanished: ", seed: 1,
		},
		{
			name: "waits-do-not-grow", quick: true, file: "internal/machine/retry_policy.go",
			oldText: "	for range min(failures, 32) - 1 {", newText: "	for range min(failures, 1) - 1 {",
			scenario: "rate-limited", finds: "stampede: ", planned: true,
		},
		{
			name: "released-machines-not-counted", file: "internal/fleet/machineset/scale.go",
			oldText: "-s.PreservedCount-s.ReleasedCount)", newText: "-s.PreservedCount)",
			scenario: "incident-policy-relabels", finds: "incident: a set does not create machines without end", seed: 6,
		},
		{
			name: "lease-that-was-not-released-taken", quick: true, file: "internal/platform/process/fence/lease.go",
			oldText:  `record.HolderIdentity == "" && !isReleased(record)`,
			newText:  `record.HolderIdentity == "" && isReleased(record)`,
			scenario: "delete", finds: "leaders: ",
			corruption: "end:control/Lease/machinist-system/machinist-manager/spec/holderIdentity=dropped",
		},
		{
			// A kubelet reports several conditions in any order.
			name: "any-condition-taken-for-ready", file: "internal/machine/register.go",
			oldText:  "		if node.Status.Conditions[i].Type == corev1.NodeReady {\n			return &node",
			newText:  "		if node.Status.Conditions[i].Type != \"\" {\n			return &node",
			scenario: "create", finds: "settled, but|after the last disturbance|not settled",
			removeDimension: simpleNodes,
		},
	}
}
