package simulation

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// pinned is how an app binds its pods to one node although that is cordoned: each pod that is evicted has a successor
// there. They move when the Node is gone.
type pinned string

const (
	unpinned pinned = ""
	// byToleration is a storage operator whose pods tolerate all taints.
	byToleration pinned = "toleration"
	// byName is a controller whose pods name the node.
	byName pinned = "name"
)

// pinnedScenarios are machines that go while the pods on them come back.
func pinnedScenarios() []Scenario {
	one := fleet(1, "a", drained)
	beside := app{name: "web", kind: ReplicaSet, replicas: 1, grace: 5, volume: true}
	return []Scenario{
		{Name: "drain-comes-back", Group: Draining, Base: one, Script: inOrder([]Action{deleteMachine(0)}),
			Apps: []app{{name: "osd", kind: ReplicaSet, replicas: 1, grace: 5, pinned: byToleration}, beside}},
		{Name: "drain-bound-to-the-node", Group: Draining, Base: one, Script: inOrder([]Action{deleteMachine(0)}),
			Apps: []app{{name: "fixed", kind: ReplicaSet, replicas: 1, grace: 2, pinned: byName}, beside}},
	}
}

// toPin returns the pods that a controller would make now that binds them to the first of the nodes.
func (w *World) toPin(a app, pods []*corev1.Pod) []*corev1.Pod {
	nodes := w.target.Snapshot(nodeKind)
	active := slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
		return p.Labels["app"] == a.name && p.DeletionTimestamp.IsZero() && !ended(p)
	})
	if len(nodes) == 0 || active {
		return nil
	}
	return []*corev1.Pod{w.podOf(a, fmt.Sprintf("%s-%d", a.name, w.target.Revision()), nodes[0].GetName())}
}

// comesBack reports whether a pod was bound to its node after the drain of that had begun.
func (w *World) comesBack(p *corev1.Pod, drainBegan time.Time) bool {
	return w.appOf(p).pinned != unpinned && !p.CreationTimestamp.Time.Before(drainBegan)
}
