package simulation

import (
	"context"
	"math/rand/v2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// replicasScenarios returns scenarios in which the applied objects lack spec.replicas, and no webhook sets it.
func replicasScenarios() []Scenario {
	return []Scenario{
		{Name: "replicas-left-out", Group: Fleets, Variants: 3, Base: fleet(3, "a", strategy(1, 0)),
			InitialActions: []Action{createSet("solo", 2, "a")}, Script: applyWithoutReplicas, MayDiffer: passedRevisions},
	}
}

// applyWithoutReplicas applies a deployment and a set without replicas, in some runs with a new revision.
// applyWithoutReplicas also applies a deployment that never had replicas.
func applyWithoutReplicas(r *rand.Rand) []Action {
	actions := []Action{
		edit("apply without replicas", func(d *v1beta1.MachineDeployment) { d.Spec.Replicas = nil }),
		editSet("solo", "apply set solo without replicas", func(set *v1beta1.MachineSet) { set.Spec.Replicas = nil }),
		create(fleet(0, "a", withName("api"), nodeGroup(2), func(d *v1beta1.MachineDeployment) { d.Spec.Replicas = nil })),
	}
	switch r.IntN(3) {
	case 0:
		actions = append([]Action{roll("b")}, actions...)
	case 1:
		actions[0] = edit("roll without replicas", func(d *v1beta1.MachineDeployment) {
			d.Spec.Replicas = nil
			d.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: "b"}
		})
	}
	return append(actions, checkReplicas())
}

func checkReplicas() Action {
	stored := func(w *World) map[string]int {
		replicas := map[string]int{}
		fleets, _ := w.fleets()
		for _, f := range fleets {
			switch {
			case f.deployment != nil && f.deployment.Spec.Replicas != nil:
				replicas[f.deployment.Name] = f.wanted
			case f.deployment == nil && f.sets[0].Spec.Replicas != nil:
				replicas[f.sets[0].Name] = f.wanted
			}
		}
		return replicas
	}
	check := Action{Name: "check the replicas", Do: func(_ context.Context, w *World, _ client.Client) error {
		if got := stored(w); got[deployment] != 3 || got["solo"] != 2 || got["api"] != 2 {
			w.oracle.breach("replicas", "the stored replicas are %v, want 3 for the deployment, 2 for the set, 2 for the group",
				got)
		}
		return nil
	}}
	return check.waitFor("all replicas are stored", func(w *World) bool { return len(stored(w)) == 3 })
}
