package placement

import (
	"math/rand/v2"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// FuzzFleet changes the replicas of a fleet and the capacity of the cloud at random. The controllers must always
// come to rest, and must not delete machines without a reason. When the cloud has capacity again, the distribution
// must be restored.
func FuzzFleet(f *testing.F) {
	for seed := range uint64(150) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		p := randomPlacement(random, 12)
		if random.IntN(2) == 0 {
			p.Rebalance = v1beta1.RebalanceNever
		}
		w := newFleet(t, p)
		classes := p.ClassNames()
		for range 15 {
			replicas := w.replicas
			deleted := w.deleted
			switch class := classes[random.IntN(len(classes))]; random.IntN(6) {
			case 0, 1:
				w.exhaust(class)
			case 2:
				w.restore(class)
			case 3:
				w.scale(random.IntN(13))
			default:
				w.after(1 + random.IntN(10))
			}
			if p.Rebalance == v1beta1.RebalanceNever && w.replicas >= replicas && w.deleted != deleted {
				t.Fatalf("%d machines were deleted without a reason:\n%s", w.deleted-deleted, w.log.String())
			}
			w.checkWaiting()
		}
		w.restore(classes...)
		w.after(61)
		possible := int64(0)
		for _, b := range boundsOf(p) {
			if b.weight > 0 {
				possible += b.maxReplicas
			}
		}
		if possible < int64(w.replicas) {
			return
		}
		for _, m := range w.machines {
			if !m.hasInstance {
				t.Fatalf("a machine at %v has no instance, although the cloud has capacity:\n%s", m.place, w.log.String())
			}
		}
		if skew := w.skew(); p.Rebalance == v1beta1.RebalanceWhenIdle && skew > float64(p.MaxSkew)+tolerance {
			t.Fatalf("the skew is %v, although the cloud has capacity:\n%s", skew, w.log.String())
		}
	})
}

// checkWaiting checks that no machine waits at rest, if another option is known to have capacity and may get it.
func (w *simulatedFleet) checkWaiting() {
	waiting, counts := 0, map[string]int{}
	for _, m := range w.machines {
		counts[m.place.Domain]++
		if !m.hasInstance {
			waiting++
		}
	}
	if waiting == 0 {
		return
	}
	shares := nominal(boundsOf(w.placement), w.replicas)
	if w.placement.WhenUnsatisfiable == v1beta1.PlacementWait && w.mustWait(counts, shares) {
		return
	}
	for i, d := range w.placement.Domains {
		if *d.Weight == 0 || d.MaxReplicas != nil && counts[d.Name] >= int(*d.MaxReplicas) {
			continue
		}
		if w.placement.WhenUnsatisfiable == v1beta1.PlacementWait &&
			float64(counts[d.Name])+1-shares[i] > float64(w.placement.MaxSkew)+tolerance {
			continue
		}
		for _, o := range d.Options {
			if !w.memory[o.ClassName].Exhausted {
				w.t.Fatalf("%d machines wait, although %s has capacity:\n%s", waiting, o.ClassName, w.log.String())
			}
		}
	}
}

// mustWait reports whether a domain would have too few machines if any of the waiting machines left its domain.
func (w *simulatedFleet) mustWait(counts map[string]int, shares []float64) bool {
	for _, m := range w.machines {
		largest := 0.0
		for i, d := range w.placement.Domains {
			deficit := shares[i] - float64(counts[d.Name])
			if d.Name == m.place.Domain {
				deficit++
			}
			largest = max(largest, deficit)
		}
		if !m.hasInstance && largest <= float64(w.placement.MaxSkew)+tolerance {
			return false
		}
	}
	return true
}

// TestScalingOneByOne shows that the skew stays below 1 if replicas change by 1 at a time, for random weights.
func TestScalingOneByOne(t *testing.T) {
	worst := 0.0
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		fleet := newFuzzedFleet(seed)
		fleet.Placement = placementOf()
		for i := range 2 + random.IntN(31) {
			name := string(rune('A' + i))
			fleet.Placement.Domains = append(fleet.Placement.Domains, domainOf(name, 1+random.IntN(100), name+"1"))
		}
		fleet.order, fleet.Machines, fleet.Own, fleet.counts = nil, map[Choice]int{}, map[string]int{}, map[string]int{}
		step := func(replicas int) {
			if fleet.Replicas = replicas; len(fleet.order) > replicas {
				fleet.deleteOne()
			} else {
				fleet.next(t)
			}
			worst = max(worst, skewOf(fleet.Placement, fleet.counts, replicas))
		}
		for n := 1; n <= 100; n++ {
			step(n)
		}
		for n := 99; n >= 0; n-- {
			step(n)
		}
	}
	if worst >= 1 {
		t.Errorf("the largest skew is %.3f", worst)
	}
}
