//go:build !race

package micro

import (
	"math"
	"runtime"
	"testing"
)

// What one event costs does not grow with the rest of the fleet. Health is judged for all machines in one pass, which
// is made less often the larger the fleet is.
func TestAReconcileCostsTheSameInALargerFleet(t *testing.T) {
	for _, k := range kinds() {
		if k.name == "health" {
			continue
		}
		const times = 30
		small, large := bytesPerRun(k.settled(t, setSize, setSize)), bytesPerRun(k.settled(t, times*setSize, setSize))
		t.Logf("%s: %d bytes in a fleet of %d, %d in one of %d", k.name, small, setSize, large, times*setSize)
		// Reading one more pointer to each of the other machines would be 8 bytes for each.
		if large > small+small/10+4<<10 {
			t.Errorf("%s: %d bytes in a fleet of %d, %d in one of %d", k.name, small, setSize, large, times*setSize)
		}
	}
}

// bytesPerRun returns how many bytes a run allocates: the least of several, since whatever else the process does
// counts too.
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
