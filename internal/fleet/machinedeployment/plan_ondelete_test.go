package machinedeployment

import (
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// The machine of a class that does not exist never gets an instance, so OnDelete would keep it forever.
//
// Rule: on-delete-replaces-what-has-no-instance.
func TestOnDeleteReplacesMachinesWithoutAnInstance(t *testing.T) {
	old := one(2)
	stuck := one(1, func(s *Set) {
		s.Name, s.Ready, s.Available, s.Unlaunched, s.Forecast = "b", 0, 0, 1, forecast(1, 1)
	})
	wanted := one(0, func(s *Set) { s.Name = "c" })
	state := State{Strategy: v1beta1.StrategyOnDelete, Replicas: 3, SizedFor: 3, Sets: []Set{old, stuck, wanted},
		CurrentIndex: 2}
	plan := MakePlan(state)
	if len(plan.Scales) != 1 || plan.Scales[0].Set != 1 || plan.Scales[0].To != 0 {
		t.Fatalf("planned %v, waiting: %s", plan.Scales, plan.WaitMessage)
	}
	state.Sets[1] = one(0, func(s *Set) { s.Name = "b" })
	if plan = MakePlan(state); len(plan.Scales) != 1 || plan.Scales[0].Set != 2 || plan.Scales[0].To != 1 {
		t.Errorf("planned %v, waiting: %s", plan.Scales, plan.WaitMessage)
	}
	state.Sets[0].Unlaunched, state.CurrentIndex = 1, 0
	state.Sets[2] = one(1, func(s *Set) { s.Name = "c" })
	if plan = MakePlan(state); len(plan.Scales) > 0 {
		t.Errorf("a machine of the wanted revision without an instance is replaced: %v", plan.Scales)
	}
}
