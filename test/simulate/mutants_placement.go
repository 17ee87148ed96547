package main

// placementMutants returns bugs in the placement of machines over domains and classes.
func placementMutants() []mutant {
	return []mutant{
		{
			name: "place-ignores-weight", file: "internal/fleet/placement/planner.go",
			oldText: "weight: int64(spec.WeightOrDefault()),", newText: "weight: 1,",
			scenario: "place-scale-down", finds: "placement step: |placement victim: |differs by", quick: true,
		},
		{
			name: "place-ignores-maximum", file: "internal/fleet/placement/planner.go",
			oldText: "d.weight == 0 || d.count >= d.maxReplicas", newText: "d.weight == 0",
			scenario: "place-zone-bounds", finds: "placement maximum: ",
		},
		{
			name: "place-uses-weight-0", file: "internal/fleet/placement/planner.go",
			oldText: "d.weight == 0 || d.count >= d.maxReplicas", newText: "d.count >= d.maxReplicas",
			scenario: "place-zone-bounds", finds: "placement weight: ",
		},
		{
			name: "place-batch-not-counted", file: "internal/fleet/placement/planner.go",
			oldText: "	p.add(c)\n	if !hasCapacity {", newText: "	if !hasCapacity {",
			scenario: "place-spread", finds: "placement step: ", quick: true,
		},
		{
			name: "place-counts-marked", file: "internal/fleet/machineset/placement.go",
			oldText: "		return !isReplaced(m) || keepsMarked", newText: "		return true || keepsMarked",
			scenario: "place-replace", finds: "placement step: ",
		},
		{
			name: "place-moves-while-launching", file: "internal/fleet/placement/places/places.go",
			oldText:  "m.Status.Launch != nil && m.Status.Launch.Step == v1beta1.LaunchStepAwaitingCapacity && !machinestate.HasFailed(m)",
			newText:  "!machinestate.HasFailed(m)",
			scenario: "place-exhaust", finds: "placement move: |I2: ",
		},
		{
			name: "place-ignores-retry-time", file: "internal/machine/launch_capacity.go",
			oldText: "	wait := state.Wait(p.now)\n", newText: "	wait := 0 * state.Wait(p.now)\n",
			scenario: "place-all-full", finds: "placement probes: |placement requests: ",
		},
		{
			name: "place-deletes-from-the-neediest", file: "internal/fleet/placement/victims.go",
			oldText: "surplus > most ||", newText: "surplus < most ||",
			scenario: "place-scale-down", finds: "placement victim: ", quick: true,
		},
		{
			name: "place-ignores-balance-at-deletion", file: "internal/fleet/machineset/placement.go",
			oldText: "	if s.Places.Placement == nil {\n		return order", newText: "	if true {\n		return order",
			scenario: "place-scale-down", finds: "placement victim: ",
		},
		{
			name: "place-hands-over-removed-classes", file: "internal/fleet/machineset/handover.go",
			oldText:  "!machinestate.HasFailed(m) && slices.Contains(classes, m.Spec.ClassRef.Name) {",
			newText:  "!machinestate.HasFailed(m) && len(classes) > 0 {",
			scenario: "place-classes", finds: "placement kept: ",
		},
		{
			name: "place-replaces-kept-machines", file: "internal/fleet/machinedeployment/plan_kept.go",
			oldText: "	return countOfClasses(machines, classNames(TemplateOf(d)))", newText: "	return 0",
			scenario: "place-classes", finds: "placement retract: ",
		},
		{
			name: "place-wait-exceeds", file: "internal/fleet/placement/planner.go",
			oldText:  "	if p.placement.WhenUnsatisfiable != v1beta1.PlacementWait || p.surplus(d) == p.surplus(neediest) {",
			newText:  "	if true {",
			scenario: "place-zone-wait", finds: "placement wait: ",
		},
		{
			name: "place-rebalances-without-end", file: "internal/fleet/placement/rebalance.go",
			oldText:  "p.surplus(most)-p.surplus(p.domain(to.Domain)) <= p.unit",
			newText:  "p.surplus(most)-p.surplus(p.domain(to.Domain)) < -p.unit",
			scenario: "place-rebalance", finds: "did not stay in the end state",
			alsoRemoved: &mutant{file: "internal/fleet/placement/rebalance.go",
				oldText: "if p.largestSkew() > p.maxSkew() {", newText: "if p.largestSkew() >= 0 {"},
		},
		{
			name: "place-rebalances-uninvited", file: "internal/fleet/placement/rebalance.go",
			oldText:  "p.placement.Rebalance != v1beta1.RebalanceWhenIdle",
			newText:  "p.placement.Rebalance == v1beta1.RebalanceWhenIdle && false",
			scenario: "place-classes", finds: "placement rebalance: ",
			alsoRemoved: &mutant{file: "internal/fleet/machineset/rebalance.go",
				oldText: "by.Rebalance != v1beta1.RebalanceWhenIdle || ", newText: ""},
		},
		{
			name: "place-rebalances-at-once", file: "internal/fleet/machineset/rebalance.go",
			oldText:  "if wait := s.NextRebalancing.Sub(s.Now); wait > 0 {",
			newText:  "if wait := s.NextRebalancing.Sub(s.Now); wait > maxRebalancingBackoff {",
			scenario: "place-zone-rebalance", finds: "steps from the last fault|not settled", seed: 91301, plan: "115:clock-back",
		},
		{
			name: "place-counts-broken", file: "internal/fleet/machineset/placement.go",
			oldText: "p.plannerFor(s).Remove(s.placeOf(m))", newText: "_ = p.plannerFor(s)",
			scenario: "place-zone-wait", finds: "placement wait: |placement step: ",
		},
		{
			name: "place-class-of-late-cache", file: "internal/fleet/machineset/observe_places.go",
			oldText: "if err != nil || p.live >= int(s.Set.ReplicasOrDefault()) {", newText: "if true {",
			scenario: "place-roll-surge", finds: "differs by", quick: true,
		},
		{
			name: "place-rollout-forgets-balance", file: "internal/fleet/machineset/observe_places.go",
			oldText: "k.OthersLeave = ReplacesOtherSets(d)", newText: "k.OthersLeave = false",
			scenario: "place-roll-both", finds: "placement step: |differs by", seed: 11,
		},
	}
}
