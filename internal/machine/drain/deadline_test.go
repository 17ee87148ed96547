package drain

import (
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestPodsAreEvictedThenDeleted checks random drains shortly before and after the time at which pods are deleted
// instead of evicted.
//
// Rule: budgets-hold-until-deadline.
func TestPodsAreEvictedThenDeleted(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		length := time.Duration(r.Int64N(4*3600)) * time.Second
		asked := r.Int64N(2 * 3600)
		if r.IntN(10) == 0 {
			asked = 0
		}
		in := Input{
			Pods:  []corev1.Pod{aPod("a/web", withGrace(asked))},
			Start: noon, Deadline: noon.Add(length), NodeReachable: true,
			// Now is usually close to the start of the deletion, but can also be a random time.
			Now: noon.Add(length - time.Duration(asked)*time.Second + time.Duration(r.Int64N(5)-2)*time.Second),
		}
		switch r.IntN(3) {
		case 0:
			in.Now = noon.Add(length/2 + time.Duration(r.Int64N(5)-2)*time.Second)
		case 1:
			in.Now = noon.Add(time.Duration(r.Int64N(5*3600)) * time.Second)
		}
		step := Plan(in).Steps[0]

		left, used := in.Deadline.Sub(in.Now).Seconds(), max(float64(asked), 1)
		if left > min(used, length.Seconds()/2) {
			if step.Action != ActionEvict {
				t.Errorf("drain of %s, grace period %d s, %v s left: %s, want an eviction", length, asked, left, step.Action)
			}
			continue
		}
		if want := max(int64(min(used, left)), 1); step.Action != ActionDelete || step.Grace != want {
			t.Errorf("drain of %s, grace period %d s, %v s left: %s with %d s, want a deletion with %d s", length, asked, left,
				step.Action, step.Grace, want)
		}
	}
}
