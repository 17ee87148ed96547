package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func (w *World) outdatedTaintsLeft() (missing []string) {
	if !w.safety.optionalReconcilers.has(OutdatedTaints) {
		return nil
	}
	for _, o := range w.target.Snapshot(nodeKind) {
		node := o.(*corev1.Node)
		if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1beta1.NodeTaintOutdated }) {
			missing = append(missing, fmt.Sprintf("node %s has the taint of an old revision", node.Name))
		}
		for _, name := range []string{v1beta1.NodeAnnotationScaleDownDisabled, "machinist.dev/outdated"} {
			if _, marked := node.Annotations[name]; marked {
				missing = append(missing, fmt.Sprintf("node %s has the annotation %s", node.Name, name))
			}
		}
	}
	return missing
}

func rollouts(r *rand.Rand) []Action {
	actions := []Action{roll("b")}
	nodes := 3 // The number of Nodes that exist in any case.
	for range 1 + r.IntN(3) {
		switch r.IntN(5) {
		case 0, 1:
			actions = append(actions, roll([]string{"a", "b", "c"}[r.IntN(3)]))
		case 2:
			actions = append(actions, pause(r.IntN(2) == 0))
		case 3:
			to := 2 + r.IntN(3)
			nodes = min(nodes, to)
			actions = append(actions, scale(int32(to)))
		case 4:
			actions = append(actions, breakInstance(r.IntN(4)))
		}
		n := len(actions) - 1
		actions[n] = actions[n].onceThereIs(min(2+r.IntN(2), nodes), "Node")
	}
	return append(actions, pause(false))
}
