package machinedeployment

import (
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// D-24: set a was told to have one machine fewer by somebody who counted on one that was not available, and then was. It
// keeps it, since no more than five are available of at least five. The way out is that the useless machine of b goes.
func TestAMachineThatIsHeldBackHoldsUpNothing(t *testing.T) {
	set := func(name string, replicas, live, available int32) Set {
		return Set{Name: name, Replicas: replicas, Least: replicas, Most: replicas, Live: live, Ready: available, Available: available}
	}
	a, b, c := set("a", 4, 5, 5), set("b", 1, 1, 0), set("c", 0, 0, 0)
	b.Spare = 1
	state := State{Strategy: v1beta1.StrategyRollingUpdate, Replicas: 6, Bounds: Bounds{MaxUnavailable: 1}, SizedFor: 6, Sets: []Set{a, b, c}, Current: 2}

	plan := MakePlan(state)
	if len(plan.Scales) != 1 || plan.Scales[0].Set != 1 || plan.Scales[0].To != 0 {
		t.Fatalf("planned %v, waiting: %s; expected set b to shrink to none", plan.Scales, plan.Waiting)
	}
	state.Sets[1] = set("b", 0, 0, 0)
	plan = MakePlan(state)
	if len(plan.Scales) != 1 || plan.Scales[0].Set != 2 || plan.Scales[0].To != 1 {
		t.Errorf("planned %v, waiting: %s; expected set c to grow to 1", plan.Scales, plan.Waiting)
	}

	// What goes in a moment is not held back: then one of b would be the second that is deleted.
	state.Sets[1], state.Sets[0] = b, set("a", 5, 6, 6)
	if plan = MakePlan(state); len(plan.Scales) != 0 {
		t.Errorf("planned %v while a machine of a is about to be deleted", plan.Scales)
	}
}
