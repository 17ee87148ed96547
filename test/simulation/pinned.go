package simulation

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// pinned says how an app binds its pods to one node. The pods run there even if the node is cordoned. If a pod is
// evicted, its app creates another pod on the same node. The pods leave the node only after the Node is deleted.
type pinned string

const (
	unpinned pinned = ""
	// byToleration is for an app such as a storage operator: its pods tolerate all taints.
	byToleration pinned = "toleration"
	// byName is for an app whose pods contain the name of the node.
	byName pinned = "name"
)

// pinnedScenarios returns scenarios in which machines are deleted, although their apps create new pods on the same node
// again and again.
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

// pinnedPodsToCreate returns the pods that an app would create now. These pods are bound to the first Node.
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

// comesBack reports whether a pod was bound to its node after the drain of this node began.
func (w *World) comesBack(p *corev1.Pod, drainBegan time.Time) bool {
	return w.appOf(p).pinned != unpinned && !p.CreationTimestamp.Time.Before(drainBegan)
}
