package placement

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// nominal returns the shares of domains by bisection of the level, as an independent oracle for sharesOf.
func nominal(domains []bounds, replicas int) []float64 {
	at := func(level float64) (result []float64, sum float64) {
		for _, d := range domains {
			share := 0.0
			if d.weight > 0 {
				share = math.Max(level*float64(d.weight), float64(d.minReplicas))
				share = math.Min(share, float64(d.maxReplicas))
			}
			result = append(result, share)
			sum += share
		}
		return result, sum
	}
	lowest, minimum := at(0)
	if minimum > float64(replicas) {
		for i := range lowest {
			lowest[i] *= float64(replicas) / minimum
		}
		return lowest
	}
	low, high := 0.0, float64(replicas)+1
	for range 200 {
		middle := (low + high) / 2
		if _, sum := at(middle); sum > float64(replicas) {
			high = middle
		} else {
			low = middle
		}
	}
	result, _ := at(low)
	return result
}

// Rule: placement-shares.
func TestSharesOf(t *testing.T) {
	for _, test := range []struct {
		name     string
		domains  []bounds
		replicas int64
		parts    []int64
		unit     int64
	}{
		{"equal weights", []bounds{{1, 0, unlimited}, {1, 0, unlimited}, {1, 0, unlimited}}, 7, []int64{7, 7, 7}, 3},
		{"weights 3:1", []bounds{{3, 0, unlimited}, {1, 0, unlimited}}, 8, []int64{24, 8}, 4},
		{"no replicas", []bounds{{3, 0, unlimited}, {1, 0, unlimited}}, 0, []int64{0, 0}, 4},
		{"weight 0", []bounds{{1, 0, unlimited}, {0, 0, unlimited}}, 5, []int64{5, 0}, 1},
		{"all weights 0", []bounds{{0, 0, unlimited}}, 5, []int64{0}, 1},
		{"minimum above the weight", []bounds{{1, 4, unlimited}, {1, 0, unlimited}, {1, 0, unlimited}}, 6, []int64{8, 2, 2}, 2},
		{"minimum below the weight", []bounds{{1, 2, unlimited}, {1, 0, unlimited}, {1, 0, unlimited}}, 9, []int64{9, 9, 9}, 3},
		{"maximum", []bounds{{1, 0, 1}, {1, 0, unlimited}, {1, 0, unlimited}}, 9, []int64{2, 8, 8}, 2},
		{"maximum and minimum", []bounds{{1, 0, 1}, {1, 6, unlimited}, {1, 0, unlimited}}, 9, []int64{1, 6, 2}, 1},
		{"maximum 0", []bounds{{1, 0, 0}, {1, 0, unlimited}}, 3, []int64{0, 3}, 1},
		{"maximums too small", []bounds{{1, 0, 2}, {5, 0, 3}}, 9, []int64{2, 3}, 1},
		{"minimums too large", []bounds{{1, 6, unlimited}, {5, 3, unlimited}, {1, 0, unlimited}}, 3, []int64{18, 9, 0}, 9},
		{"minimums exactly", []bounds{{1, 2, unlimited}, {1, 1, 1}}, 3, []int64{2, 1}, 1},
		{"minimum of a domain with weight 0", []bounds{{0, 2, unlimited}, {1, 0, unlimited}}, 3, []int64{0, 3}, 1},
		{"minimum above the maximum", []bounds{{1, 5, 2}, {1, 0, unlimited}}, 8, []int64{2, 6}, 1},
		{"negative replicas", []bounds{{1, 0, unlimited}}, -1, []int64{0}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := sharesOf(test.domains, test.replicas)
			for i, part := range test.parts {
				if got.parts[i]*test.unit != part*got.unit {
					t.Errorf("share of domain %d is %d/%d, want %d/%d", i, got.parts[i], got.unit, part, test.unit)
				}
			}
		})
	}
}

// FuzzSharesOf compares random shares with an independent oracle.
func FuzzSharesOf(f *testing.F) {
	for seed := range uint64(1000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		replicas := random.IntN([]int{5, 50, 100001}[random.IntN(3)])
		domains := make([]bounds, 1+random.IntN(32))
		sumOfMax := int64(0)
		for i := range domains {
			domains[i] = randomBounds(random, replicas)
			if domains[i].weight > 0 {
				sumOfMax += domains[i].maxReplicas
			}
		}
		got, want := sharesOf(domains, int64(replicas)), nominal(domains, replicas)
		sum := int64(0)
		for i := range domains {
			if share := float64(got.parts[i]) / float64(got.unit); math.Abs(share-want[i]) > 1e-6*(1+want[i]) {
				t.Errorf("share of domain %d is %v, want %v", i, share, want[i])
			}
			sum += got.parts[i]
		}
		if wantSum := min(int64(replicas), sumOfMax) * got.unit; sum != wantSum {
			t.Errorf("the sum of the shares is %d/%d, want %d/%d", sum, got.unit, wantSum, got.unit)
		}
		if t.Failed() {
			t.Log(fmt.Sprint(domains, " replicas ", replicas))
		}
	})
}

// randomBounds returns valid bounds of a domain. All extreme values occur.
func randomBounds(random *rand.Rand, replicas int) bounds {
	b := bounds{weight: 1, maxReplicas: unlimited}
	switch random.IntN(5) {
	case 0:
		b.weight = 0
		return b
	case 1:
		b.weight = 1 + random.Int64N(1000)
	case 2:
		b.weight = 1 + random.Int64N(3)
	}
	if random.IntN(4) == 0 {
		b.maxReplicas = random.Int64N(int64(replicas) + 1)
	}
	if random.IntN(4) == 0 {
		b.minReplicas = random.Int64N(min(b.maxReplicas, int64(replicas)/3) + 1)
	}
	return b
}
