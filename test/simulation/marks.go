package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// marksMissing says which Nodes are still marked as outdated.
func (w *World) marksMissing() (missing []string) {
	if !w.guards.rooms.has(Marks) {
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

// rollouts is what people do who think better of a rollout.
func rollouts(r *rand.Rand) []Deed {
	deeds := []Deed{roll("b")}
	nodes := 3 // How many there come to be in any case.
	for range 1 + r.IntN(3) {
		switch r.IntN(5) {
		case 0, 1:
			deeds = append(deeds, roll([]string{"a", "b", "c"}[r.IntN(3)]))
		case 2:
			deeds = append(deeds, pause(r.IntN(2) == 0))
		case 3:
			to := 2 + r.IntN(3)
			nodes = min(nodes, to)
			deeds = append(deeds, scale(int32(to)))
		case 4:
			deeds = append(deeds, breakInstance(r.IntN(4)))
		}
		n := len(deeds) - 1
		deeds[n] = deeds[n].onceThereIs(min(2+r.IntN(2), nodes), "Node")
	}
	return append(deeds, pause(false))
}
