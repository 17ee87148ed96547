package integration

import (
	"maps"
	"slices"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

func (b *bench) wantOutdated(what string, want ...string) {
	b.Helper()
	sets := b.sets()
	got := slices.DeleteFunc(slices.Sorted(maps.Keys(sets)), func(class string) bool {
		_, outdated := sets[class].Annotations[v1beta1.AnnotationOutdated]
		return !outdated
	})
	if !slices.Equal(got, want) {
		b.Errorf("%s: the sets of classes %v are declared outdated, expected %v", what, got, want)
	}
}

func (b *bench) midway() {
	b.Helper()
	b.create(4, rolling("2", "0"))
	b.settle()
	b.wantOutdated("settled")
	b.change(class("b"))
	b.reconcile()
}

// The first pass of a rollout annotates the old set, before it deletes a machine.
//
// Rule: outdated-node-taints.
func TestOldSetsAreDeclaredOutdatedDuringARollout(t *testing.T) {
	b := newBench(t)
	b.midway()
	b.wantOutdated("the rollout began", "a")
	b.wantReplicas(map[string]int32{"a": 4, "b": 2})
	b.took()
	b.reconcile()
	if calls := b.took(); slices.Contains(calls, "patch MachineSet") {
		t.Errorf("a set is written again: %v", calls)
	}
	b.restart()
	b.reconcile()
	b.wantOutdated("another process", "a")

	b.changeSet("a", func(set *v1beta1.MachineSet) { delete(set.Annotations, v1beta1.AnnotationOutdated) })
	b.reconcile()
	b.wantOutdated("removed by hand, which is no way to stop it", "a")

	b.change(func(d *v1beta1.MachineDeployment) { d.Spec.Paused = true })
	b.reconcile()
	b.wantOutdated("paused", "a")
	b.change(func(d *v1beta1.MachineDeployment) { d.Spec.Paused = false })
	b.play()
	b.settle()

	b.change(class("c"))
	b.reconcile()
	b.play()
	b.change(class("b"))
	b.reconcile()
	b.wantOutdated("undone: 2 machines of class c are to be replaced", "a", "c")
	b.change(func(d *v1beta1.MachineDeployment) {
		d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyOnDelete}
	})
	b.reconcile()
	b.wantOutdated("somebody has to delete the old machines")
}

// Rule: outdated-node-taints.
func TestOldSetsAreNotOutdatedWhenSwitchedOff(t *testing.T) {
	b := newBench(t)
	b.midway()
	b.options.NoOutdatedTaints = true
	b.restart()
	b.reconcile()
	b.wantOutdated("switched off")
}
