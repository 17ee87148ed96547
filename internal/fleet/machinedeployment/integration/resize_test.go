package integration

import (
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/freshness"
)

// If spec.replicas changes during a rollout, the change is divided among the sets only once. Otherwise each pass would
// first scale the old set up because of the change, and then down because of the rollout.
//
// Rule: scale-during-rollout-in-proportion.
func TestAChangeOfReplicasIsSharedOnceWhileOnlyAnOldSetHasMachines(t *testing.T) {
	b := newBench(t)
	b.create(3, rolling("0", "1"))
	b.settle()
	b.change(class("b"))
	b.reconcile()
	b.wantReplicas(map[string]int32{"a": 2, "b": 0})
	b.change(replicas(4))
	b.reconcile()
	if got := b.sets()["b"].Annotations[v1beta1.AnnotationSizedFor]; got != "4" {
		t.Errorf("the newest set remembers that the sets were sized for %q, not 4", got)
	}
	b.settle()
	b.wantReplicas(map[string]int32{"a": 0, "b": 4})
}

// An autoscaler annotates machines just before it lowers replicas, so a cache older than the spec is not enough.
//
// Rule: scale-during-rollout-in-proportion.
func TestDeleteAnnotationsAreSeenBeforeSetsShrink(t *testing.T) {
	b := newBench(t)
	b.create(4, rolling("2", "0"))
	b.settle()
	b.change(class("b"))
	b.reconcile()
	b.play()
	b.wantReplicas(map[string]int32{"a": 4, "b": 2})
	b.change(func(d *v1beta1.MachineDeployment) { d.Spec.Paused = true })
	b.reconcile()
	b.wantReplicas(map[string]int32{"a": 4, "b": 2})

	list := &v1beta1.MachineList{}
	b.must(b.api.List(b.ctx, list, client.InNamespace(b.namespace),
		client.MatchingLabels{v1beta1.LabelMachineSet: b.sets()["b"].Name}))
	named := &list.Items[0]
	was := named.DeepCopy()
	named.Annotations = map[string]string{v1beta1.AnnotationDeleteMachine: ""}
	b.must(b.api.Patch(b.ctx, named, client.MergeFrom(was)))
	b.change(replicas(3))
	b.hooks.machines = func(l *v1beta1.MachineList) {
		for i := range l.Items {
			delete(l.Items[i].Annotations, v1beta1.AnnotationDeleteMachine)
		}
	}
	b.options.MachineCacheVersion = func() string { return was.ResourceVersion }
	b.r.MachineCacheVersion = b.options.MachineCacheVersion
	b.reconcile()
	b.wantReplicas(map[string]int32{"a": 4, "b": 1})
}

// If all machines are deleted, the annotations do not matter.
func TestNoLiveListWhereAllMachinesGo(t *testing.T) {
	b := newBench(t)
	b.create(3, rolling("1", "0"))
	b.settle()
	behind := func() string { return "1" }
	b.options.MachineCacheVersion, b.r.MachineCacheVersion = behind, behind
	for _, test := range []struct {
		to   int32
		live bool
	}{{2, true}, {0, false}} {
		b.change(replicas(test.to))
		b.took()
		b.reconcile()
		b.wantReplicas(map[string]int32{"a": test.to})
		if calls := b.took(); slices.Contains(calls, "live list MachineList") != test.live {
			t.Errorf("calls on the way to %d: %q, listed live: want %t", test.to, calls, test.live)
		}
	}
}

// A deployment computes the size of a set from a cache. When the set creates or deletes machines to reach this size,
// its cache must be at least as new as the cache of the deployment.
//
// Rule: victims-from-fresh-view.
func TestDecisionsFromTheCacheAreNoted(t *testing.T) {
	b := newBench(t)
	b.options.Decisions = &freshness.Decisions{}
	b.restart()
	b.create(4, rolling("1", "0"))
	b.settle()
	ahead, behind := func() string { return "999999999999" }, func() string { return "1" }
	for _, step := range []struct {
		to    int32
		seen  func() string
		noted bool
	}{{3, behind, false}, {2, ahead, true}, {5, behind, false}, {6, ahead, true}} {
		b.r.MachineCacheVersion = step.seen
		b.change(replicas(step.to))
		b.reconcile()
		b.wantReplicas(map[string]int32{"a": step.to})
		set := b.sets()["a"]
		if got := b.options.Decisions.Has(set.UID, set.Generation); got != step.noted {
			t.Errorf("sized for %d: noted is %t, expected %t", step.to, got, step.noted)
		}
	}
}
