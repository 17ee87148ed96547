package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// victim is a machine such as "a3" in tier 0: in domain a, created third.
type victim struct {
	name string
	tier int
}

func (v victim) place() Choice {
	if strings.HasPrefix(v.name, "-") {
		return Choice{}
	}
	return Choice{v.name[:1], v.name[:1] + "1"}
}

func sameTier(a, b victim) bool { return a.tier == b.tier }

// victimsOf parses machines in deletion order. The tiers are separated by "|".
func victimsOf(s string) (machines []victim) {
	tier := 0
	for _, name := range strings.Fields(s) {
		if name == "|" {
			tier++
			continue
		}
		machines = append(machines, victim{name, tier})
	}
	return machines
}

func TestDeletionOrder(t *testing.T) {
	for _, test := range []struct {
		name     string
		replicas int
		machines map[Choice]int
		given    string
		want     string
	}{
		{"balanced: the given order decides", 3, map[Choice]int{{"a", "a1"}: 1, {"b", "b1"}: 1, {"c", "c1"}: 1}, "b1 c1 a1", "b1 c1 a1"},
		{"largest surplus first, counted one after the other", 3, map[Choice]int{{"a", "a1"}: 1, {"b", "b1"}: 3, {"c", "c1"}: 2}, "a1 c1 c2 b1 b2 b3", "b1 c1 b2 a1 c2 b3"},
		{"the tier precedes the surplus", 3, map[Choice]int{{"a", "a1"}: 1, {"b", "b1"}: 3}, "a1 | b1 b2 b3", "a1 b1 b2 b3"},
		{"earlier tiers count", 3, map[Choice]int{{"a", "a1"}: 2, {"b", "b1"}: 2}, "b1 | b2 a1 a2", "b1 a1 b2 a2"},
		{"machines of other sets count", 3, map[Choice]int{{"a", "a1"}: 1, {"b", "b1"}: 4}, "a1 b1", "b1 a1"},
		{"an unknown domain has no share", 3, map[Choice]int{{"a", "a1"}: 1, {"x", "x1"}: 1}, "a1 x1", "x1 a1"},
		{"machines that do not count are first and lower no surplus", 2, map[Choice]int{{"a", "a1"}: 1, {"b", "b1"}: 2}, "-1 -2 | a1 -3 b1 b2", "-1 -2 -3 b1 a1 b2"},
		{"nothing", 3, nil, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := New(State{Placement: zones(), Replicas: test.replicas, Machines: test.machines, Now: noon})
			given := victimsOf(test.given)
			before := fmt.Sprint(given)
			for range 2 { // The first call does not change the planner.
				var got []string
				for _, m := range DeletionOrder(p, given, victim.place, sameTier) {
					got = append(got, m.name)
				}
				if strings.Join(got, " ") != test.want {
					t.Errorf("DeletionOrder() = %v, want %v", got, test.want)
				}
			}
			if fmt.Sprint(given) != before {
				t.Error("DeletionOrder() changes its argument")
			}
		})
	}
}

// FuzzDeletionOrder compares the order with a slow implementation, which decides about each machine with a new
// planner.
func FuzzDeletionOrder(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := State{Placement: zones(), Replicas: random.IntN(20), Machines: map[Choice]int{}, Now: noon}
		s.Placement.Domains[0].Weight = new(int32(random.IntN(4)))
		var machines []victim
		tier := 0
		for i := range random.IntN(20) {
			if random.IntN(6) == 0 {
				tier++
			}
			m := victim{fmt.Sprintf("%c%d", "aabbcx-"[random.IntN(7)], i), tier}
			machines = append(machines, m)
			if c := m.place(); c != (Choice{}) {
				s.Machines[c]++
			}
		}
		for _, c := range []Choice{{"a", "a2"}, {"c", "c1"}} { // other sets
			s.Machines[c] += random.IntN(4)
		}
		got := DeletionOrder(New(s), machines, victim.place, sameTier)
		if len(got) != len(machines) {
			t.Fatalf("%d machines, want %d", len(got), len(machines))
		}
		rest := slices.Clone(machines)
		for i, m := range got {
			p := New(s)
			best := -1
			for j, other := range rest {
				switch {
				case other.tier != rest[0].tier:
				case best < 0, other.place() == Choice{} && rest[best].place() != Choice{}:
					best = j
				case rest[best].place() == Choice{}:
				case p.Surplus(other.place().Domain) > p.Surplus(rest[best].place().Domain)+tolerance:
					best = j
				}
			}
			if rest[best] != m {
				t.Fatalf("machine %d is %v, want %v\ngiven %v\ngot %v", i, m, rest[best], machines, got)
			}
			rest = slices.Delete(rest, best, best+1)
			if c := m.place(); c != (Choice{}) {
				s.Machines[c]--
			}
		}
	})
}

// largeFleet returns a state with 5,000 machines in 32 domains with 16 options each.
func largeFleet() (State, []Choice) {
	s := State{Placement: placementOf(), Replicas: 5000, Machines: map[Choice]int{}, Now: noon,
		Capacity: map[string]Capacity{}}
	var machines []Choice
	for i := range 32 {
		d := domainOf(fmt.Sprintf("zone-%d", i), 1+i%3)
		for j := range 16 {
			d.Options = append(d.Options, domainOf("", fmt.Sprintf("class-%d-%d", i, j)).Options...)
			if j < 15 {
				s.Capacity[d.Options[j].ClassName] = exhausted(1, 0)
			}
		}
		s.Placement.Domains = append(s.Placement.Domains, d)
	}
	for i := range 5000 {
		d := s.Placement.Domains[i*i%32]
		c := Choice{d.Name, d.Options[i%16].ClassName}
		s.Machines[c]++
		machines = append(machines, c)
	}
	return s, machines
}

func BenchmarkNext(b *testing.B) {
	s, _ := largeFleet()
	p := New(s)
	for b.Loop() {
		p.Next()
	}
}

func BenchmarkDeletionOrder(b *testing.B) {
	s, machines := largeFleet()
	for b.Loop() {
		DeletionOrder(New(s), machines, func(c Choice) Choice { return c }, func(_, _ Choice) bool { return true })
	}
}

func BenchmarkReport(b *testing.B) {
	s, _ := largeFleet()
	s.Replicas = 10000
	for b.Loop() {
		New(s).Report().Balanced()
	}
}

func BenchmarkRebalance(b *testing.B) {
	s, _ := largeFleet()
	s.Placement.Rebalance = "WhenIdle"
	for b.Loop() {
		New(s).Rebalance()
	}
}
