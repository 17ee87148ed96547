package placement

import (
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

func TestRebalance(t *testing.T) {
	idle := func(p *v1beta1.Placement) *v1beta1.Placement { return modes(p, "", v1beta1.RebalanceWhenIdle) }
	later := exhausted(time.Minute, 0)
	noA := map[string]Capacity{"a1": later, "a2": later}
	for _, test := range []struct {
		name  string
		state State
		from  string
		to    string
	}{
		{"balanced", State{Placement: idle(zones()), Replicas: 4, Machines: map[Choice]int{{"a", "a1"}: 2, {"b", "b1"}: 1, {"c", "c1"}: 1}}, "", ""},
		{"the placement does not rebalance", State{Placement: zones(), Replicas: 6, Machines: map[Choice]int{{"b", "b1"}: 6}}, "", ""},
		{"largest surplus to largest deficit", State{Placement: idle(zones()), Replicas: 9, Machines: map[Choice]int{{"a", "a1"}: 1, {"b", "b1"}: 6, {"c", "c1"}: 2}}, "b1", "a1"},
		{"exactly maxSkew", State{Placement: idle(zones()), Replicas: 9, Machines: map[Choice]int{{"a", "a1"}: 2, {"b", "b1"}: 4, {"c", "c1"}: 3}}, "", ""},
		{"only a deficit exceeds maxSkew", State{Placement: idle(zones()), Replicas: 4, Machines: map[Choice]int{{"b", "b1"}: 2, {"c", "c1"}: 2}}, "b1", "a1"},
		{"least preferred option first", State{Placement: idle(zones()), Replicas: 6, Machines: map[Choice]int{{"b", "b1"}: 3, {"b", "b2"}: 3}}, "b2", "a1"},
		{"removed class first", State{Placement: idle(zones()), Replicas: 6, Machines: map[Choice]int{{"b", "b2"}: 3, {"b", "x"}: 3}}, "x", "a1"},
		{"no capacity in the other domain", State{Placement: idle(zones()), Replicas: 6, Machines: map[Choice]int{{"b", "b1"}: 3, {"c", "c1"}: 3}, Capacity: noA}, "", ""},
		{"a third domain has capacity", State{Placement: idle(zones()), Replicas: 9, Machines: map[Choice]int{{"b", "b1"}: 6, {"c", "c1"}: 3}, Capacity: noA}, "b1", "c1"},
		{"a third domain would not improve", State{Placement: idle(zones()), Replicas: 9, Machines: map[Choice]int{{"b", "b1"}: 4, {"c", "c1"}: 5}, Capacity: noA}, "", ""},
		{"probe of the other domain", State{Placement: idle(zones()), Replicas: 6, Machines: map[Choice]int{{"b", "b1"}: 3, {"c", "c1"}: 3}, Capacity: map[string]Capacity{"a1": exhausted(0, 0)}}, "b1", "a1"},
		{"maxReplicas of the other domain", State{Placement: idle(placementOf(domainOf("a", "a1", "max=1"), domainOf("b", "b1"), domainOf("c", "c1"))), Replicas: 9, Machines: map[Choice]int{{"a", "a1"}: 1, {"b", "b1"}: 6, {"c", "c1"}: 2}}, "b1", "c1"},
		{"weight 0", State{Placement: idle(placementOf(domainOf("a", "a1", 0), domainOf("b", "b1"))), Replicas: 3, Machines: map[Choice]int{{"a", "a1"}: 2, {"b", "b1"}: 1}}, "a1", "b1"},
		{"machines in no domain stay", State{Placement: idle(zones()), Replicas: 9, Machines: map[Choice]int{{"x", "y"}: 9}}, "", ""},
		{"preferred option", State{Placement: idle(zones()), Replicas: 3, Machines: map[Choice]int{{"a", "a1"}: 1, {"b", "b2"}: 1, {"c", "c1"}: 1}}, "b2", "b1"},
		{"least preferred option", State{Placement: idle(placementOf(domainOf("a", "a1", "a2", "a3"))), Replicas: 2, Machines: map[Choice]int{{"a", "a2"}: 1, {"a", "a3"}: 1}, Capacity: map[string]Capacity{"a1": later}}, "a3", "a2"},
		{"the preferred option has no capacity", State{Placement: idle(zones()), Replicas: 3, Machines: map[Choice]int{{"a", "a1"}: 1, {"b", "b2"}: 1, {"c", "c1"}: 1}, Capacity: map[string]Capacity{"b1": later}}, "", ""},
		{"the domain precedes the option", State{Placement: idle(zones()), Replicas: 6, Machines: map[Choice]int{{"b", "b1"}: 4, {"c", "c2"}: 2}}, "b1", "a1"},
		{"the option, if no domain can improve", State{Placement: idle(zones()), Replicas: 6, Machines: map[Choice]int{{"b", "b1"}: 3, {"c", "c2"}: 3}, Capacity: noA}, "c2", "c1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.state.Now = noon
			p := New(test.state)
			from, to, ok := p.Rebalance()
			if from.ClassName != test.from || to.ClassName != test.to || ok != (test.from != "") {
				t.Errorf("Rebalance() = %v → %v, %v, want %q → %q", from, to, ok, test.from, test.to)
			}
			if !samePlanner(p, New(test.state)) {
				t.Error("Rebalance() changes the planner")
			}
		})
	}
}
