package machineset

import (
	"fmt"
	"testing"
)

// A pass costs time in proportion to the machines of its set; watches.go spaces passes out in the same proportion.
func BenchmarkSettledPass(b *testing.B) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := stateOf(aSet(int32(n)), several("m", n, up)...)
			for b.Loop() {
				Resume(s.Machines, n, 0, s.Now).InFlight(s.Machines)
				Status(s, Decide(s), Reason{})
			}
		})
	}
}

func BenchmarkScaleDown(b *testing.B) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := stateOf(aSet(int32(n/2)), several("m", n, up)...)
			for b.Loop() {
				Decide(s)
			}
		})
	}
}
