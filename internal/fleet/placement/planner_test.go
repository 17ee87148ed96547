package placement

import (
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// exhausted returns the capacity of a class that is tried again at a time relative to noon.
func exhausted(retry time.Duration, pending int) Capacity {
	return Capacity{Exhausted: true, Since: noon.Add(-time.Hour), RetryTime: noon.Add(retry), Pending: pending}
}

func TestNext(t *testing.T) {
	wait := func(p *v1beta1.Placement, maxSkew int32) *v1beta1.Placement {
		p.WhenUnsatisfiable, p.MaxSkew = v1beta1.PlacementWait, maxSkew
		return p
	}
	later, over := exhausted(time.Minute, 0), exhausted(0, 0)
	for _, test := range []struct {
		name    string
		state   State
		class   string
		waits   bool
		blocked Blocked
	}{
		{"largest deficit", State{Placement: zones(), Replicas: 6, Machines: map[Choice]int{{"a", "a1"}: 2, {"b", "b1"}: 1, {"c", "c1"}: 2}}, "b1", false, ""},
		{"order", State{Placement: zones(), Replicas: 3}, "a1", false, ""},
		{"fewer machines of the own set", State{Placement: zones(), Replicas: 3, Own: map[string]int{"a": 1, "b": 1}}, "c1", false, ""},
		{"a deficit precedes the own set", State{Placement: zones(), Replicas: 3, Own: map[string]int{"a": 1}, Machines: map[Choice]int{{"b", "b1"}: 1, {"c", "c1"}: 1}}, "a1", false, ""},
		{"more than replicas", State{Placement: zones(), Replicas: 1, Machines: map[Choice]int{{"a", "a1"}: 2, {"b", "b1"}: 1, {"c", "c1"}: 2}}, "b1", false, ""},
		{"a class outside of the placement counts for its domain", State{Placement: zones(), Replicas: 3, Machines: map[Choice]int{{"a", "removed"}: 1}}, "b1", false, ""},
		{"an unknown domain counts for no domain", State{Placement: zones(), Replicas: 3, Machines: map[Choice]int{{"", "removed"}: 5, {"x", "y"}: 5}}, "a1", false, ""},
		{"weight 0", State{Placement: placementOf(domainOf("a", 0, "a1"), domainOf("b", "b1")), Replicas: 3, Machines: map[Choice]int{{"b", "b1"}: 3}}, "b1", false, ""},
		{"maxReplicas", State{Placement: placementOf(domainOf("a", 9, "a1", "max=1"), domainOf("b", "b1")), Replicas: 9, Machines: map[Choice]int{{"a", "a2"}: 1}}, "b1", false, ""},
		{"all at maxReplicas", State{Placement: placementOf(domainOf("a", "a1", "max=1"), domainOf("b", "b1", 0)), Replicas: 9, Machines: map[Choice]int{{"a", "a2"}: 1}}, "", false, BoundsReached},
		{"second option", State{Placement: zones(), Replicas: 3, Capacity: map[string]Capacity{"a1": later}}, "a2", false, ""},
		{"the retry time is over", State{Placement: zones(), Replicas: 3, Capacity: map[string]Capacity{"a1": over}}, "a1", false, ""},
		{"the probe exists already", State{Placement: zones(), Replicas: 3, Capacity: map[string]Capacity{"a1": exhausted(0, 1)}}, "a2", false, ""},
		{"no retry time", State{Placement: zones(), Replicas: 3, Capacity: map[string]Capacity{"a1": {Exhausted: true}}}, "a1", false, ""},
		{"pending machines of a class with capacity", State{Placement: zones(), Replicas: 3, Capacity: map[string]Capacity{"a1": {Pending: 7}}}, "a1", false, ""},
		{"other domain", State{Placement: zones(), Replicas: 3, Capacity: map[string]Capacity{"a1": later, "a2": later}}, "b1", false, ""},
		{"missing class", State{Placement: zones(), Replicas: 3, Capacity: map[string]Capacity{"a1": {Missing: true}}}, "a2", false, ""},
		{"missing classes of a domain", State{Placement: zones(), Replicas: 3, Capacity: map[string]Capacity{"a1": {Missing: true}, "a2": {Missing: true}}}, "b1", false, ""},
		{"wait, missing classes of a domain", State{Placement: wait(zones(), 1), Replicas: 9, Machines: map[Choice]int{{"b", "b1"}: 3, {"c", "c1"}: 4}, Capacity: map[string]Capacity{"a1": {Missing: true}, "a2": {Missing: true}}}, "b1", false, ""},
		{"all classes missing", State{Placement: placementOf(domainOf("a", "a1"), domainOf("b", "b1", "max=0")), Replicas: 3, Capacity: map[string]Capacity{"a1": {Missing: true}}}, "", false, NoOption},
		{"no capacity: earliest retry", State{Placement: placementOf(domainOf("a", "a1", "a2", "a3")), Replicas: 3, Capacity: map[string]Capacity{"a1": exhausted(2, 0), "a2": exhausted(1, 0), "a3": exhausted(1, 0)}}, "a2", true, ""},
		{"no capacity: not the missing class", State{Placement: placementOf(domainOf("a", "a1", "a2")), Replicas: 3, Capacity: map[string]Capacity{"a1": {Missing: true}, "a2": later}}, "a2", true, ""},
		{"no capacity: neediest domain", State{Placement: placementOf(domainOf("a", "a1"), domainOf("b", "b1")), Replicas: 3, Machines: map[Choice]int{{"a", "a1"}: 1}, Capacity: map[string]Capacity{"a1": later, "b1": exhausted(30*time.Minute, 0)}}, "b1", true, ""},
		{"wait: the neediest domain has capacity", State{Placement: wait(zones(), 1), Replicas: 3, Machines: map[Choice]int{{"b", "b1"}: 9}}, "a1", false, ""},
		{"wait: the neediest domain would exceed maxSkew", State{Placement: wait(zones(), 1), Replicas: 9, Machines: map[Choice]int{{"a", "a1"}: 1, {"b", "b1"}: 3, {"c", "c1"}: 4}, Capacity: map[string]Capacity{"a1": later, "a2": later}}, "a1", true, ""},
		{"wait: within maxSkew", State{Placement: wait(zones(), 1), Replicas: 9, Machines: map[Choice]int{{"a", "a1"}: 2, {"b", "b1"}: 3, {"c", "c1"}: 3}, Capacity: map[string]Capacity{"a1": later, "a2": later}}, "b1", false, ""},
		{"wait: beyond maxSkew", State{Placement: wait(zones(), 1), Replicas: 9, Machines: map[Choice]int{{"b", "b1"}: 4, {"c", "c1"}: 4}, Capacity: map[string]Capacity{"a1": later, "a2": later}}, "a1", true, ""},
		{"wait: maxSkew 2", State{Placement: wait(zones(), 2), Replicas: 9, Machines: map[Choice]int{{"a", "a1"}: 1, {"b", "b1"}: 4, {"c", "c1"}: 4}, Capacity: map[string]Capacity{"a1": later, "a2": later}}, "b1", false, ""},
		{"exceed: beyond maxSkew", State{Placement: zones(), Replicas: 9, Machines: map[Choice]int{{"b", "b1"}: 5, {"c", "c1"}: 4}, Capacity: map[string]Capacity{"a1": later, "a2": later}}, "c1", false, ""},
		{"no placement", State{Replicas: 3}, "", false, BoundsReached},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.state.Now = noon
			c, hasCapacity, blocked := New(test.state).Next()
			if c.ClassName != test.class || hasCapacity == test.waits && blocked == "" || blocked != test.blocked {
				t.Errorf("Next() = %v, %v, %q, want class %q, waits %v, %q", c, hasCapacity, blocked, test.class, test.waits,
					test.blocked)
			}
			if want := test.state.Placement.DomainOf(test.class); c.Domain != want {
				t.Errorf("domain %q, want %q", c.Domain, want)
			}
		})
	}
}

// TestNextCounts shows that each machine counts for the following decisions, and that the state does not change.
func TestNextCounts(t *testing.T) {
	s := State{Placement: zones(), Replicas: 6, Now: noon, Machines: map[Choice]int{{"c", "c1"}: 1}, Own: map[string]int{},
		Capacity: map[string]Capacity{"a1": exhausted(0, 0), "a2": exhausted(time.Minute, 0)}}
	p := New(s)
	for i, want := range []string{"a1", "b1", "c1", "b1", "c1"} {
		if c, _, _ := p.Next(); c.ClassName != want {
			t.Errorf("machine %d gets class %q, want %q", i, c.ClassName, want)
		}
	}
	if len(s.Machines) != 1 || s.Machines[Choice{"c", "c1"}] != 1 || len(s.Own) != 0 || s.Capacity["a1"].Pending != 0 {
		t.Errorf("the state has changed: %v", s)
	}
}

func TestMove(t *testing.T) {
	later := exhausted(time.Minute, 3)
	wait := func(p *v1beta1.Placement) *v1beta1.Placement {
		p.WhenUnsatisfiable = v1beta1.PlacementWait
		return p
	}
	atA1 := map[Choice]int{{"a", "a1"}: 3, {"b", "b1"}: 3, {"c", "c1"}: 3}
	for _, test := range []struct {
		name     string
		p        *v1beta1.Placement
		from     Choice
		machines map[Choice]int
		capacity map[string]Capacity
		to       string // empty: stays
	}{
		{"its class has capacity again", zones(), Choice{"a", "a1"}, atA1, nil, ""},
		{"it is the probe", zones(), Choice{"a", "a1"}, atA1, map[string]Capacity{"a1": exhausted(0, 1)}, ""},
		{"others wait for the probe", zones(), Choice{"a", "a1"}, atA1, map[string]Capacity{"a1": exhausted(0, 2)}, "a2"},
		{"to the next option", zones(), Choice{"a", "a1"}, atA1, map[string]Capacity{"a1": later}, "a2"},
		{"to the preferred option", zones(), Choice{"a", "a2"}, map[Choice]int{{"a", "a2"}: 1}, map[string]Capacity{"a2": later}, "a1"},
		{"to another domain", zones(), Choice{"a", "a1"}, atA1, map[string]Capacity{"a1": later, "a2": later}, "b1"},
		{"as the probe of another domain", zones(), Choice{"a", "a1"}, atA1, map[string]Capacity{"a1": later, "a2": later, "b1": exhausted(0, 0)}, "b1"},
		{"nothing has capacity", placementOf(domainOf("a", "a1", "a2")), Choice{"a", "a1"}, atA1, map[string]Capacity{"a1": later, "a2": exhausted(time.Second, 0)}, ""},
		{"wait: within maxSkew", wait(zones()), Choice{"a", "a1"}, atA1, map[string]Capacity{"a1": later, "a2": later}, "b1"},
		{"wait: beyond maxSkew", wait(zones()), Choice{"a", "a1"}, map[Choice]int{{"a", "a1"}: 1, {"b", "b1"}: 4, {"c", "c1"}: 4}, map[string]Capacity{"a1": later, "a2": later}, ""},
		{"maxReplicas of its own domain", placementOf(domainOf("a", "a1", "a2", "max=3")), Choice{"a", "a1"}, atA1, map[string]Capacity{"a1": later}, "a2"},
		{"maxReplicas of the other domain", placementOf(domainOf("a", "a1"), domainOf("b", "b1", "max=3")), Choice{"a", "a1"}, atA1, map[string]Capacity{"a1": later}, ""},
		{"equal domains: stays in its own", placementOf(domainOf("b", "b1"), domainOf("a", "a1", "a2")), Choice{"a", "a1"}, map[Choice]int{{"a", "a1"}: 1}, map[string]Capacity{"a1": later}, "a2"},
		{"a missing class", placementOf(domainOf("a", "a1", "a2")), Choice{"a", "a1"}, atA1, map[string]Capacity{"a1": {Missing: true}, "a2": later}, "a2"},
		{"a class outside of the placement", placementOf(domainOf("a", "a2")), Choice{"x", "a1"}, map[Choice]int{{"x", "a1"}: 1}, map[string]Capacity{"a1": later}, "a2"},
		{"no such machine", zones(), Choice{"a", "a1"}, nil, map[string]Capacity{"a1": later}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := New(State{Placement: test.p, Replicas: 9, Machines: test.machines, Capacity: test.capacity, Now: noon,
				Own: map[string]int{"a": 1}, Waiting: map[Choice]int{test.from: 1}})
			before := p.clone()
			to, moves := p.Move(test.from)
			if moves != (test.to != "") || moves && to.ClassName != test.to {
				t.Fatalf("Move() = %v, %v, want %q", to, moves, test.to)
			}
			if !moves {
				if to != test.from || !samePlanner(p, before) {
					t.Errorf("the planner has changed, although the machine stays")
				}
				return
			}
			if p.machines[test.from] != test.machines[test.from]-1 || p.machines[to] != test.machines[to]+1 {
				t.Errorf("the move does not count: %v", p.machines)
			}
			wantWaiting := 0
			if test.capacity[to.ClassName].Exhausted && noon.Before(test.capacity[to.ClassName].RetryTime) {
				wantWaiting = 1
			}
			if waiting := p.waiting[test.from] + p.waiting[to]; waiting != wantWaiting {
				t.Errorf("%d machines wait after the move, want %d", waiting, wantWaiting)
			}
			if got, want := p.capacity[test.from.ClassName].Pending, before.capacity[test.from.ClassName].Pending-1; got != max(want, 0) {
				t.Errorf("%d machines are pending at the old place, want %d", got, want)
			}
		})
	}
}

func samePlanner(a, b *Planner) bool {
	for c, n := range a.machines {
		if b.machines[c] != n {
			return false
		}
	}
	for class, known := range a.capacity {
		if other := b.capacity[class]; other != nil && *known != *other {
			return false
		}
	}
	for name, d := range a.byName {
		if other := b.byName[name]; other != nil && (d.count != other.count || d.own != other.own) {
			return false
		}
	}
	return true
}

// TestOneProbe shows that of several waiting machines one stays as the probe, and the others move.
func TestOneProbe(t *testing.T) {
	p := New(State{Placement: zones(), Replicas: 3, Machines: map[Choice]int{{"a", "a1"}: 3}, Now: noon,
		Capacity: map[string]Capacity{"a1": exhausted(0, 3), "a2": exhausted(time.Minute, 0)}})
	for i, want := range []string{"b1", "c1", "a1"} {
		if to, _ := p.Move(Choice{"a", "a1"}); to.ClassName != want {
			t.Errorf("machine %d is at %q, want %q", i, to.ClassName, want)
		}
	}
}

func TestSurplusAndRemove(t *testing.T) {
	p := New(State{Placement: zones(), Replicas: 4, Machines: map[Choice]int{{"a", "a1"}: 2, {"x", "y"}: 2}, Now: noon})
	check := func(domain string, want float64) {
		t.Helper()
		if got := p.Surplus(domain); got-want > 1e-9 || want-got > 1e-9 {
			t.Errorf("Surplus(%q) = %v, want %v", domain, got, want)
		}
	}
	check("a", 2-4.0/3)
	check("b", -4.0/3)
	check("x", 2)
	check("unknown", 0)
	p.Remove(Choice{"a", "a1"})
	p.Remove(Choice{"x", "y"})
	p.Remove(Choice{"b", "b1"}) // has no machine
	check("a", 1-4.0/3)
	check("b", -4.0/3)
	check("x", 1)
}

// Rule placement-rollout-balanced: a rollout ends with the machines of the newest set, so these machines must be
// balanced, although the machines of the old set count while several domains need machines.
func TestLeavingMachines(t *testing.T) {
	three := placementOf(domainOf("a", "a1"), domainOf("b", "b1"), domainOf("c", "c1", "max=2"))
	for name, test := range map[string]struct {
		leaving map[string]int
		own     map[Choice]int
		n       int
		want    string
	}{
		"all old machines in one domain":         {map[string]int{"c": 6}, nil, 6, "a1 b1 a1 b1 c1 c1"},
		"balanced old machines":                  {map[string]int{"a": 2, "b": 2, "c": 2}, nil, 6, "a1 b1 c1 a1 b1 c1"},
		"machines of two domains were kept":      {map[string]int{"c": 2}, map[Choice]int{{"a", "a1"}: 2, {"b", "b1"}: 2}, 2, "c1 c1"},
		"the old machines do not count as bound": {map[string]int{"c": 2}, map[Choice]int{{"a", "a1"}: 2, {"b", "b1"}: 3}, 1, "c1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(State{Placement: three, Replicas: 6, Machines: test.own, Leaving: test.leaving})
			var got []string
			for range test.n {
				c, _, _ := p.Next()
				got = append(got, c.ClassName)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got %s, want %s", strings.Join(got, " "), test.want)
			}
		})
	}
}
