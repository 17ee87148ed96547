package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// placementScenarios returns scenarios in which one deployment has machines in several zones, of several types.
func placementScenarios() []Scenario {
	of := func(name string, variants int, d *v1beta1.MachineDeployment, script func(*rand.Rand) []Action) Scenario {
		actions := []Action{createZones()}
		if d != nil {
			actions = append(actions, create(d))
		}
		return Scenario{Name: name, Group: Placements, Variants: variants, InitialActions: actions, Script: script,
			MayDiffer: anyPlace}
	}
	roll := func(change func(*v1beta1.MachineDeployment)) (*v1beta1.MachineDeployment, func(*rand.Rand) []Action) {
		return placed(5, change, ofFirstVersion), func(r *rand.Rand) []Action {
			actions := []Action{upgrade("v1.36.4")}
			if r.IntN(2) == 0 {
				actions = append(actions, scale(int32(3+r.IntN(5))).after(upTo(r, time.Minute)))
			}
			return actions
		}
	}
	surge, script := roll(strategy(1, 0))
	unavailable, _ := roll(strategy(0, 1))
	both, _ := roll(strategy(2, 1))
	inPlace, _ := roll(ofType(v1beta1.StrategyInPlace))
	recreate, _ := roll(ofType(v1beta1.StrategyRecreate))
	onDelete, _ := roll(ofType(v1beta1.StrategyOnDelete))
	onDeleteScenario := of("place-roll-on-delete", 1, onDelete, func(r *rand.Rand) []Action {
		return []Action{upgrade("v1.36.4"), deleteMachine(r.IntN(5)), deleteMachine(r.IntN(5)).after(upTo(r, time.Minute))}
	})
	onDeleteScenario.MayDiffer = anyEnd
	return []Scenario{
		of("place-spread", 4, nil, spreading),
		of("place-scale-down", 3, placed(8, weights(2, 1, 1)), scalingDown),
		of("place-roll-surge", 2, surge, script),
		of("place-roll-unavailable", 2, unavailable, script),
		of("place-roll-both", 1, both, script),
		of("place-roll-in-place", 2, inPlace, script),
		of("place-roll-recreate", 1, recreate, script),
		onDeleteScenario,
		of("place-classes", 4, placed(5, strategy(1, 0)), changingClasses),
		of("place-classes-in-place", 2, placed(5, ofType(v1beta1.StrategyInPlace)), changingClasses),
		of("place-rebalance", 3, placed(6, rebalancing, strategy(1, 0)), restoring),
		of("place-replace", 2, placed(6, strategy(1, 0)), func(r *rand.Rand) []Action {
			return []Action{replace(r.IntN(6)), replace(r.IntN(6)).after(upTo(r, time.Minute))}
		}),
		of("place-exhaust", 4, placed(4), exhausting),
		of("place-all-full", 2, placed(3), func(r *rand.Rand) []Action {
			return []Action{limit(0, zones...), scale(int32(5 + r.IntN(6))), refill(r, zones...)}
		}),
		of("place-zone-loss", 3, placed(6), losing),
		of("place-zone-wait", 3, placed(6, waiting), losing),
		ofOwnCloud(of("place-zone-rebalance", 3, placed(6, rebalancing, strategy(1, 0)), losing)),
		ofOwnCloud(of("place-exhaust-rebalance", 2, placed(4, rebalancing, strategy(1, 0)), exhausting)),
		// Of the remaining zones, one gets only one more machine, and the other one gets none.
		of("place-zone-bounds", 2, placed(6, weights(1, 1, 0), bounded(1, 0, 4)), func(r *rand.Rand) []Action {
			return []Action{limit(0, "z1"), loseZone("z1").after(upTo(r, 20*time.Second)), refill(r, "z1")}
		}),
		of("place-roll-exhausted", 2, placed(4, strategy(1, 0), ofFirstVersion), func(r *rand.Rand) []Action {
			full := []string{zones[r.IntN(3)], classIn(zones[r.IntN(3)], "small")}[r.IntN(2)]
			return []Action{limit(0, full), upgrade("v1.36.4"), refill(r, full)}
		}),
		of("place-flap", 3, placed(5), flapping),
	}
}

// ofOwnCloud returns the scenario without other semantics of the cloud. If the cloud accepts instances without having
// capacity for them, a set restores its balance only after hours.
func ofOwnCloud(s Scenario) Scenario {
	s.OwnCloud = true
	return s
}

// refill restores the capacity a while later. The time is shorter than the wait that would exceed the patience of the
// simulation.
func refill(r *rand.Rand, names ...string) Action {
	return limit(-1, names...).after(time.Minute + upTo(r, 5*time.Minute))
}

// exhausting takes away the capacity for the preferred class of a zone, scales up, and restores the capacity.
func exhausting(r *rand.Rand) []Action {
	class := classIn(zones[r.IntN(3)], "small")
	return []Action{limit(r.IntN(4), class), scale(int32(6 + r.IntN(3))), refill(r, class),
		scale(10).after(upTo(r, 3*time.Minute))}
}

// losing takes away the capacity of a zone. Its machines vanish at the same time or later. The capacity returns for all
// machines, or first for a single one.
func losing(r *rand.Rand) []Action {
	zone := zones[r.IntN(3)]
	actions := []Action{limit(0, zone), loseZone(zone).after(upTo(r, 20*time.Second))}
	if r.IntN(2) == 0 {
		actions = append(actions, scale(int32(4+r.IntN(5))).after(upTo(r, time.Minute)))
	}
	if r.IntN(2) == 0 {
		actions = append(actions, limit(1, zone).after(time.Minute+upTo(r, 2*time.Minute)))
	}
	return append(actions, refill(r, zone))
}

// flapping takes away and restores the capacity of zones several times, while users scale the deployment.
func flapping(r *rand.Rand) []Action {
	var actions []Action
	for range 2 + r.IntN(2) {
		full := []string{zones[r.IntN(3)], classIn(zones[r.IntN(3)], "small")}[r.IntN(2)]
		actions = append(actions, limit(r.IntN(2), full).after(upTo(r, time.Minute)),
			scale(int32(3+r.IntN(6))).after(upTo(r, 20*time.Second)),
			limit(-1, full).after(upTo(r, 3*time.Minute)))
	}
	return actions
}

// placed returns a deployment with machines in all zones. The small type is preferred.
func placed(replicas int32, change ...func(*v1beta1.MachineDeployment)) *v1beta1.MachineDeployment {
	return fleet(replicas, "", append([]func(*v1beta1.MachineDeployment){func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.Spec.ClassRef = nil
		d.Spec.Placement = &v1beta1.Placement{MaxSkew: 1, WhenUnsatisfiable: v1beta1.PlacementExceed,
			Rebalance: v1beta1.RebalanceNever}
		for _, zone := range zones {
			weight := int32(1)
			d.Spec.Placement.Domains = append(d.Spec.Placement.Domains, v1beta1.PlacementDomain{Name: zone, Weight: &weight,
				Options: []v1beta1.PlacementOption{{ClassName: classIn(zone, "small")}, {ClassName: classIn(zone, "large")}}})
		}
	}}, change...)...)
}

func weights(all ...int32) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) {
		for i := range d.Spec.Placement.Domains {
			d.Spec.Placement.Domains[i].Weight = &all[i]
		}
	}
}

// bounded returns a function that sets minReplicas and maxReplicas of one domain.
func bounded(domain int, least, most int32) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) {
		d.Spec.Placement.Domains[domain].MinReplicas, d.Spec.Placement.Domains[domain].MaxReplicas = least, &most
	}
}

func waiting(d *v1beta1.MachineDeployment) {
	d.Spec.Placement.WhenUnsatisfiable = v1beta1.PlacementWait
}

func rebalancing(d *v1beta1.MachineDeployment) {
	d.Spec.Placement.Rebalance = v1beta1.RebalanceWhenIdle
}

// editPlacement changes the placement. After that, the machines may exceed maxSkew until a controller restores the
// balance.
func editPlacement(name string, change func(*v1beta1.MachineDeployment)) Action {
	a := edit(name, change)
	do := a.Do
	a.Do = func(ctx context.Context, w *World, c client.Client) error {
		w.skewed = true
		return do(ctx, w, c)
	}
	return a
}

// spreading creates a deployment with random weights and bounds, and scales it up.
func spreading(r *rand.Rand) []Action {
	change := []func(*v1beta1.MachineDeployment){
		weights(1, 1, 1), weights(3, 1, 0), weights(2, 3, 1), bounded(0, 0, 1), bounded(1, 3, 4), bounded(2, 0, 0),
	}[r.IntN(6)]
	n := int32(3 + r.IntN(4))
	return []Action{create(placed(n, change)), scale(n + int32(1+r.IntN(5))).onceMade(r.IntN(int(n))),
		scale(n).after(upTo(r, time.Minute))}
}

// scalingDown scales a deployment down in one or two steps. Users may request the deletion of machines.
func scalingDown(r *rand.Rand) []Action {
	n := int32(3 + r.IntN(4))
	actions := []Action{scale(n), scale(n - int32(1+r.IntN(2))).after(upTo(r, 30*time.Second))}
	if r.IntN(2) == 0 {
		actions = slices.Insert(actions, 1, deleteMachine(r.IntN(8)).after(upTo(r, 10*time.Second)))
	}
	return actions
}

// withoutOption removes a class from a placement, and its domain if the domain has no other class.
func withoutOption(class string) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) {
		domains := d.Spec.Placement.Domains
		for i := range domains {
			domains[i].Options = slices.DeleteFunc(domains[i].Options,
				func(o v1beta1.PlacementOption) bool { return o.ClassName == class })
		}
		d.Spec.Placement.Domains = slices.DeleteFunc(domains,
			func(d v1beta1.PlacementDomain) bool { return len(d.Options) == 0 })
	}
}

// changingClasses changes the classes of a deployment: a class or a whole domain is removed, and then restored.
// Machines of the other classes must remain.
func changingClasses(r *rand.Rand) []Action {
	zone := zones[r.IntN(3)]
	small, large := classIn(zone, "small"), classIn(zone, "large")
	remove := editPlacement("remove class "+small, withoutOption(small))
	switch r.IntN(4) {
	case 0:
		remove = editPlacement("remove class "+large, withoutOption(large))
	case 1:
		remove = editPlacement("remove zone "+zone, func(d *v1beta1.MachineDeployment) {
			withoutOption(small)(d)
			withoutOption(large)(d)
		})
	}
	restore := editPlacement("restore all classes", func(d *v1beta1.MachineDeployment) {
		d.Spec.Placement = placed(0).Spec.Placement
	}).after([]time.Duration{0, 20 * time.Second, 4 * time.Minute}[r.IntN(3)])
	actions := []Action{remove, restore}
	switch r.IntN(3) {
	case 0:
		actions = actions[:1]
	case 1:
		actions = append(actions, scale(int32(4+r.IntN(4))).after(upTo(r, time.Minute)))
	}
	return actions
}

// restoring changes the weights of a deployment that restores the balance.
func restoring(r *rand.Rand) []Action {
	change := [][]int32{{3, 1, 0}, {0, 1, 1}, {1, 4, 1}}[r.IntN(3)]
	actions := []Action{editPlacement(fmt.Sprintf("change the weights to %v", change), weights(change...))}
	if r.IntN(2) == 0 {
		actions = append(actions, editPlacement("restore the weights", weights(1, 1, 1)).after(upTo(r, 3*time.Minute)))
	}
	return actions
}
