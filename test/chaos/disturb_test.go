package main

import (
	"math/rand/v2"
	"testing"
)

func TestDrawFollowsWeights(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	weights, drawn := []int{1, 0, 3}, make([]int, 3)
	for range 4000 {
		drawn[draw(random, weights, func(w int) int { return w })]++
	}
	if drawn[1] != 0 || drawn[0] < 800 || drawn[0] > 1200 || drawn[0]+drawn[2] != 4000 {
		t.Errorf("weights %v: got %v draws per index", weights, drawn)
	}
}

func TestSeedDeterminesDisturbances(t *testing.T) {
	choices := func(seed uint64) (out []string) {
		e := newExperiment(options{seed: seed})
		e.replicas = []*replica{{name: "manager-a", program: programs[0]}, {name: "provider-a", program: programs[1]}}
		generators := e.cloudGenerators()
		for range 20 {
			d := choose(e.random, generators)
			out = append(out, d.text+d.duration.String())
		}
		return out
	}
	same, again, other := choices(7), choices(7), choices(8)
	differs := false
	for i := range same {
		if same[i] != again[i] {
			t.Errorf("choice %d of one seed: got %q, then %q", i, same[i], again[i])
		}
		differs = differs || same[i] != other[i]
	}
	if !differs {
		t.Error("two different seeds choose the same disturbances")
	}
}
