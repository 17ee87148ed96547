//go:build !race

package micro

import (
	"math"
	"runtime"
	"testing"
)

// The cost of one event must not grow with the fleet. Health checks are an exception: each pass checks all machines,
// but larger fleets have fewer passes.
func TestReconcileCostIsIndependentOfFleetSize(t *testing.T) {
	for _, k := range kinds() {
		if k.name == "health" {
			continue
		}
		const times = 30
		small, large := bytesPerRun(k.steadyPass(t, setSize, setSize)), bytesPerRun(k.steadyPass(t, times*setSize, setSize))
		t.Logf("%s: %d bytes in a fleet of %d, %d bytes in a fleet of %d", k.name, small, setSize, large, times*setSize)
		// One pointer per machine would already cost 8 bytes per machine.
		if large > small+small/10+4<<10 {
			t.Errorf("%s: got %d bytes in a fleet of %d and %d bytes in a fleet of %d, want about the same", k.name,
				small, setSize, large, times*setSize)
		}
	}
}

// bytesPerRun returns the smallest value of several runs, because other work of the process also allocates memory.
func bytesPerRun(run func()) uint64 {
	const runs = 20
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	run()
	least := uint64(math.MaxUint64)
	var before, after runtime.MemStats
	for range runs {
		runtime.ReadMemStats(&before)
		run()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}
