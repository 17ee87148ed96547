package machinedeployment

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/bounds"
)

// Rule: outdated-node-taints.
func TestSetsAreDeclaredOutdated(t *testing.T) {
	const a, b = 0, 1
	by := func(kind v1beta1.DeploymentStrategyType) func(*v1beta1.MachineDeployment) {
		return func(d *v1beta1.MachineDeployment) { d.Spec.Strategy.Type = kind }
	}
	manual := func(d *v1beta1.MachineDeployment) {
		d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyInPlace,
			InPlace: &v1beta1.InPlaceUpdate{Orchestration: v1beta1.OrchestrationManual}}
	}
	paused := func(d *v1beta1.MachineDeployment) { d.Spec.Paused = true }
	frozen := func(d *v1beta1.MachineDeployment) { d.Labels = map[string]string{v1beta1.LabelFreeze: ""} }
	wants := func(class string) func(*v1beta1.MachineDeployment) {
		return func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = class }
	}
	tests := []struct {
		name          string
		off           bool
		change        func(*v1beta1.MachineDeployment)
		set           int
		empty, before bool
		want          bool
	}{
		{name: "old", set: a, want: true},
		{name: "new", set: b},
		{name: "old and empty", set: a, empty: true},
		{name: "emptied by the rollout", set: a, empty: true, before: true, want: true},
		{name: "switched off", off: true, set: a},
		{name: "switched off during a rollout", off: true, set: a, before: true},
		{name: "the set of the new revision is created", change: wants("c"), set: b, want: true},
		{name: "the new revision has no set yet, paused", change: func(d *v1beta1.MachineDeployment) { wants("c")(d); paused(d) },
			set: b},
		{name: "rolled back to", change: wants("a"), set: a, before: true},
		{name: "rolled back from", change: wants("a"), set: b, want: true},
		{name: "paused, old", change: paused, set: a},
		{name: "paused during a rollout, old", change: paused, set: a, before: true, want: true},
		{name: "paused and rolled back", change: func(d *v1beta1.MachineDeployment) { wants("a")(d); paused(d) }, set: a,
			before: true, want: true},
		{name: "frozen", change: frozen, set: a},
		{name: "frozen during a rollout", change: frozen, set: a, before: true, want: true},
		{name: "in place, old", change: by(v1beta1.StrategyInPlace), set: a, want: true},
		{name: "in place, new", change: by(v1beta1.StrategyInPlace), set: b},
		{name: "in place, orchestration Manual", change: manual, set: a, before: true},
		{name: "strategy OnDelete", change: by(v1beta1.StrategyOnDelete), set: a, before: true},
		{name: "strategy Recreate", change: by(v1beta1.StrategyRecreate), set: a, before: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d, sets, replicas := deployment("b"), []*v1beta1.MachineSet{setOf("a", 1, noon), setOf("b", 2, noon)}, int32(3)
			if test.change != nil {
				test.change(d)
			}
			set := sets[test.set]
			machines := map[types.UID][]*v1beta1.Machine{}
			if !test.empty {
				set.Spec.Replicas = &replicas
				machines[set.UID] = []*v1beta1.Machine{machine("1", 1, isReady), machine("2", 1, isReady),
					machine("3", 1, isReady)}
			}
			if test.before {
				annotate(set, v1beta1.AnnotationOutdated, "")
			}
			limits, err := bounds.ForDeployment(d)
			if err != nil {
				t.Fatal(err)
			}
			r := New(Options{NoOutdatedTaints: test.off})
			p := &pass{Reconciler: r, deployment: d, known: r.shared.get(types.NamespacedName{}, d.UID), now: noon}
			v := p.observe(t.Context(), sets, machines, limits)
			v.plan = MakePlan(v.state)
			if _, got := v.wantedSet(d, test.set, 0).Annotations[v1beta1.AnnotationOutdated]; got != test.want {
				t.Errorf("the set is declared outdated: %t, expected %t", got, test.want)
			}
		})
	}
}
