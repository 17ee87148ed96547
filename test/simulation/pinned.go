package simulation

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// pinned is how an app binds its pods to one node although the node is cordoned. Each evicted pod gets a successor on
// the same node. The pods move when the Node is gone.
type pinned string

const (
	unpinned pinned = ""
	// byToleration is for a storage operator whose pods tolerate all taints.
	byToleration pinned = "toleration"
	// byName is for a controller whose pods name the node.
	byName pinned = "name"
)

// pinnedScenarios returns scenarios in which machines are deleted while pods keep coming back to them.
func pinnedScenarios() []Scenario {
	one := fleet(1, "a", drained)
	other := app{name: "web", kind: ReplicaSet, replicas: 1, grace: 5, volume: true}
	return []Scenario{
		{Name: "drain-comes-back", Group: Draining, Base: one, Script: inOrder([]Action{deleteMachine(0)}),
			Apps: []app{{name: "osd", kind: ReplicaSet, replicas: 1, grace: 5, pinned: byToleration}, other}},
		{Name: "drain-bound-to-the-node", Group: Draining, Base: one, Script: inOrder([]Action{deleteMachine(0)}),
			Apps: []app{{name: "fixed", kind: ReplicaSet, replicas: 1, grace: 2, pinned: byName}, other}},
	}
}

// pinnedPodsToCreate returns the pods that the controller of an app would create now, which binds them to the first
// Node.
func (w *World) pinnedPodsToCreate(a app, pods []*corev1.Pod) []*corev1.Pod {
	nodes := w.target.Snapshot(nodeKind)
	active := slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
		return p.Labels["app"] == a.name && p.DeletionTimestamp.IsZero() && !ended(p)
	})
	if len(nodes) == 0 || active {
		return nil
	}
	return []*corev1.Pod{w.podOf(a, fmt.Sprintf("%s-%d", a.name, w.target.Revision()), nodes[0].GetName())}
}

// comesBack reports whether a pod was bound to its node after the drain of the node had begun.
func (w *World) comesBack(p *corev1.Pod, drainBegan time.Time) bool {
	return w.appOf(p).pinned != unpinned && !p.CreationTimestamp.Time.Before(drainBegan)
}
