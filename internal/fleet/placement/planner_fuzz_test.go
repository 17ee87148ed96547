package placement

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

const tolerance = 1e-6

// randomPlacement returns a valid placement.
func randomPlacement(random *rand.Rand, replicas int) *v1beta1.Placement {
	p := &v1beta1.Placement{MaxSkew: int32(1 + random.IntN(2)), Rebalance: v1beta1.RebalanceWhenIdle}
	if random.IntN(2) == 0 {
		p.WhenUnsatisfiable = v1beta1.PlacementWait
	}
	for i := range 1 + random.IntN(6) {
		b := randomBounds(random, replicas)
		if i == 0 && b.weight == 0 {
			b.weight = 1
		}
		d := v1beta1.PlacementDomain{Name: string(rune('a' + i)), Weight: new(int32(b.weight)),
			MinReplicas: int32(b.minReplicas)}
		if b.maxReplicas != unlimited {
			d.MaxReplicas = new(int32(b.maxReplicas))
		}
		for option := range 1 + random.IntN(3) {
			d.Options = append(d.Options, v1beta1.PlacementOption{ClassName: fmt.Sprintf("%s%d", d.Name, option+1)})
		}
		p.Domains = append(p.Domains, d)
	}
	return p
}

// fuzzedFleet is a random placement with random machines.
type fuzzedFleet struct {
	State
	random *rand.Rand
	order  []Choice // machines in deletion order without placement
	counts map[string]int
}

func newFuzzedFleet(seed uint64) *fuzzedFleet {
	random := rand.New(rand.NewPCG(seed, 0))
	f := &fuzzedFleet{random: random, counts: map[string]int{}}
	f.Replicas = random.IntN(60)
	f.Placement = randomPlacement(random, f.Replicas)
	f.Now, f.Machines, f.Own, f.Capacity = noon, map[Choice]int{}, map[string]int{}, map[string]Capacity{}
	start := random.IntN(2*f.Replicas + 1)
	for range start {
		d := f.Placement.Domains[random.IntN(len(f.Placement.Domains))]
		c := Choice{d.Name, d.Options[random.IntN(len(d.Options))].ClassName}
		switch random.IntN(20) {
		case 0:
			c = Choice{"", "removed"}
		case 1:
			c.ClassName = "removed"
		}
		f.add(c)
	}
	return f
}

func (f *fuzzedFleet) add(c Choice) {
	f.Machines[c]++
	f.Own[c.Domain]++
	f.counts[c.Domain]++
	f.order = append(f.order, c)
}

func (f *fuzzedFleet) removeAt(i int) {
	c := f.order[i]
	f.order = append(f.order[:i:i], f.order[i+1:]...)
	f.Machines[c]--
	f.Own[c.Domain]--
	f.counts[c.Domain]--
}

// deleteOne deletes the machine that DeletionOrder chooses.
func (f *fuzzedFleet) deleteOne() Choice {
	indexes := make([]int, len(f.order))
	for i := range indexes {
		indexes[i] = i
	}
	ordered := DeletionOrder(New(f.State), indexes, func(i int) Choice { return f.order[i] },
		func(_, _ int) bool { return true })
	c := f.order[ordered[0]]
	f.removeAt(ordered[0])
	return c
}

// next creates a machine and checks that no domain has too many machines.
func (f *fuzzedFleet) next(t *testing.T) (Choice, bool) {
	c, _, blocked := New(f.State).Next()
	full := true
	for _, d := range f.Placement.Domains {
		full = full && (*d.Weight == 0 || d.MaxReplicas != nil && f.counts[d.Name] >= int(*d.MaxReplicas))
	}
	if full != (blocked == BoundsReached) {
		t.Fatalf("Next() returns %q, but full = %v", blocked, full)
	}
	if blocked != "" {
		return c, false
	}
	f.add(c)
	for _, d := range f.Placement.Domains {
		if d.Name == c.Domain && (*d.Weight == 0 || d.MaxReplicas != nil && f.counts[d.Name] > int(*d.MaxReplicas)) {
			t.Fatalf("Next() creates a machine in %q, which has %d machines now", d.Name, f.counts[d.Name])
		}
	}
	return c, true
}

// FuzzBalance starts with random machines and creates and deletes machines until nothing changes. Then each domain
// must have the nearest numbers to its share.
func FuzzBalance(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		fleet := newFuzzedFleet(seed)
		for len(fleet.order) > fleet.Replicas {
			fleet.deleteOne()
		}
		for range 2*fleet.Replicas + 5 {
			if len(fleet.order) >= fleet.Replicas && len(fleet.order) > 0 {
				fleet.deleteOne()
			}
			for len(fleet.order) < fleet.Replicas {
				if _, created := fleet.next(t); !created {
					break
				}
			}
		}
		shares := nominal(boundsOf(fleet.Placement), fleet.Replicas)
		sum := 0.0
		for _, share := range shares {
			sum += share
		}
		if sum < float64(fleet.Replicas)-tolerance {
			return // The bounds are too small for all replicas. The machines of other domains remain.
		}
		for i, d := range fleet.Placement.Domains {
			if difference := math.Abs(float64(fleet.counts[d.Name]) - shares[i]); difference >= 1-tolerance {
				t.Errorf("domain %s has %d machines, but its share is %v", d.Name, fleet.counts[d.Name], shares[i])
			}
		}
		if fleet.counts[""] > 0 {
			t.Errorf("%d machines are in no domain", fleet.counts[""])
		}
	})
}

// FuzzRebalance repeats Rebalance until nothing changes. The distribution must never become worse, and Next must
// create the replacement where Rebalance expects it.
func FuzzRebalance(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		fleet := newFuzzedFleet(seed)
		for _, class := range fleet.Placement.ClassNames() {
			if fleet.random.IntN(4) == 0 {
				fleet.Capacity[class] = exhausted(time.Minute, 0)
			}
		}
		skew := skewOf(fleet.Placement, fleet.counts, fleet.Replicas)
		steps := 0
		for ; steps < 1000; steps++ {
			from, to, ok := New(fleet.State).Rebalance()
			if !ok {
				break
			}
			if fleet.Machines[from] == 0 || fleet.Capacity[to.ClassName].Exhausted {
				t.Fatalf("Rebalance() = %v → %v, machines %v, capacity %v", from, to, fleet.Machines, fleet.Capacity)
			}
			for i, c := range fleet.order {
				if c == from {
					fleet.removeAt(i)
					break
				}
			}
			if got, _ := fleet.next(t); got != to {
				t.Fatalf("Rebalance() = %v → %v, but Next() = %v", from, to, got)
			}
			now := skewOf(fleet.Placement, fleet.counts, fleet.Replicas)
			if now > skew+tolerance {
				t.Fatalf("Rebalance() = %v → %v increases the skew from %v to %v", from, to, skew, now)
			}
			skew = now
		}
		if steps == 1000 {
			t.Fatal("Rebalance() does not come to an end")
		}
		if len(fleet.Capacity) > 0 || skew <= float64(fleet.Placement.MaxSkew)+tolerance {
			return
		}
		// All domains have capacity, so the remaining skew is not caused by two domains that could balance each other.
		shares := nominal(boundsOf(fleet.Placement), fleet.Replicas)
		for i, from := range fleet.Placement.Domains {
			for j, to := range fleet.Placement.Domains {
				difference := float64(fleet.counts[from.Name]) - shares[i] - float64(fleet.counts[to.Name]) + shares[j]
				full := *to.Weight == 0 || to.MaxReplicas != nil && fleet.counts[to.Name] >= int(*to.MaxReplicas)
				if fleet.counts[from.Name] > 0 && !full && difference > 1+tolerance {
					t.Errorf("skew %v remains, although a machine could move from %s to %s", skew, from.Name, to.Name)
				}
			}
		}
	})
}

// FuzzNext compares the place of a machine with the rules, for random capacities.
func FuzzNext(f *testing.F) {
	for seed := range uint64(1000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		fleet := newFuzzedFleet(seed)
		for _, class := range fleet.Placement.ClassNames() {
			switch fleet.random.IntN(6) {
			case 0:
				fleet.Capacity[class] = Capacity{Pending: fleet.random.IntN(2)}
			case 1, 2:
				fleet.Capacity[class] = exhausted(time.Duration(1+fleet.random.IntN(3)), 0)
			case 3:
				fleet.Capacity[class] = exhausted(-time.Minute, fleet.random.IntN(2))
			case 4:
				fleet.Capacity[class] = Capacity{Missing: true}
			}
		}
		p := New(fleet.State)
		for range 1 + fleet.random.IntN(20) {
			c, hasCapacity, blocked := p.Next()
			fleet.check(t, c, hasCapacity, blocked)
			if blocked != "" {
				break
			}
			fleet.add(c)
			known := fleet.Capacity[c.ClassName]
			known.Pending++
			fleet.Capacity[c.ClassName] = known
		}
	})
}

// candidate is a domain that may get the next machine.
type candidate struct {
	spec    v1beta1.PlacementDomain
	deficit float64
	free    string // first class with capacity
}

// check checks a decision of Next.
func (f *fuzzedFleet) check(t *testing.T, c Choice, hasCapacity bool, blocked Blocked) {
	t.Helper()
	var candidates []candidate
	below := false
	largest := math.Inf(-1)
	shares := nominal(boundsOf(f.Placement), f.Replicas)
	for i, d := range f.Placement.Domains {
		if *d.Weight == 0 || d.MaxReplicas != nil && f.counts[d.Name] >= int(*d.MaxReplicas) {
			continue
		}
		below = true
		domain := candidate{spec: d, deficit: shares[i] - float64(f.counts[d.Name])}
		exists := false
		for _, o := range d.Options {
			known := f.Capacity[o.ClassName]
			exists = exists || !known.Missing
			probe := known.Exhausted && known.Pending == 0 && !f.Now.Before(known.RetryTime)
			if domain.free == "" && !known.Missing && (!known.Exhausted || probe) {
				domain.free = o.ClassName
			}
		}
		if exists {
			candidates = append(candidates, domain)
			largest = max(largest, domain.deficit)
		}
	}
	switch {
	case len(candidates) == 0 && below:
		if blocked != NoOption {
			t.Fatalf("Next() = %v, %q, but no class exists", c, blocked)
		}
		return
	case len(candidates) == 0:
		if blocked != BoundsReached {
			t.Fatalf("Next() = %v, %q, but no domain is below maxReplicas", c, blocked)
		}
		return
	case blocked != "":
		t.Fatalf("Next() is blocked: %q, candidates %v", blocked, candidates)
	}
	var chosen candidate
	alternative := false // a domain with capacity that may get the machine
	for _, d := range candidates {
		if d.spec.Name == c.Domain {
			chosen = d
		}
		within := f.Placement.WhenUnsatisfiable != v1beta1.PlacementWait || d.deficit >= largest-tolerance ||
			1-d.deficit <= float64(f.Placement.MaxSkew)+tolerance && largest <= float64(f.Placement.MaxSkew)+tolerance
		if d.free != "" && within {
			alternative = true
			if hasCapacity && d.deficit > chosenDeficit(candidates, c)+tolerance {
				t.Fatalf("Next() = %v, but %v has a larger deficit", c, d)
			}
		}
	}
	switch {
	case chosen.spec.Name == "":
		t.Fatalf("Next() = %v is none of %v", c, candidates)
	case hasCapacity && chosen.free != c.ClassName:
		t.Fatalf("Next() = %v, but the first class with capacity is %q", c, chosen.free)
	case !hasCapacity && (chosen.deficit < largest-tolerance || f.Capacity[c.ClassName].Missing):
		t.Fatalf("Next() waits at %v, largest deficit %v, candidates %v", c, largest, candidates)
	case !hasCapacity && alternative:
		t.Fatalf("Next() waits at %v, although a domain has capacity: %v", c, candidates)
	}
	if hasCapacity {
		return
	}
	for _, o := range chosen.spec.Options {
		known := f.Capacity[o.ClassName]
		if !known.Missing && known.RetryTime.Before(f.Capacity[c.ClassName].RetryTime) {
			t.Fatalf("Next() waits at %v, but %s is tried earlier", c, o.ClassName)
		}
	}
}

// chosenDeficit returns the deficit of the domain of a place.
func chosenDeficit(candidates []candidate, c Choice) float64 {
	for _, d := range candidates {
		if d.spec.Name == c.Domain {
			return d.deficit
		}
	}
	return math.Inf(1)
}
