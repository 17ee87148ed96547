package simulation

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// pinned defines how an app binds its pods to one node. The pods run there even if the node is cordoned, and the app
// recreates evicted pods there. The pods run on this node until the Node object is deleted.
type pinned string

const (
	unpinned pinned = ""
	// byToleration is for an app, such as a storage operator, whose pods tolerate all taints.
	byToleration pinned = "toleration"
	byName       pinned = "name"
)

// pinnedScenarios returns scenarios in which machines are deleted while apps keep creating pods on their nodes.
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

func (w *World) comesBack(p *corev1.Pod, drainBegan time.Time) bool {
	return w.appOf(p).pinned != unpinned && !p.CreationTimestamp.Time.Before(drainBegan)
}
