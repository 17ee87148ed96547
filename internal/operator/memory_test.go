package operator

import (
	"runtime"
	"testing"
	"time"
)

func TestTheHeapMayBeAsLargeAsItWasLately(t *testing.T) {
	const MiB = 1 << 20
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var pace heapPace
	for _, step := range []struct {
		name        string
		after       time.Duration
		live, roots uint64
		want        int
	}{
		{"at first", 0, 10 * MiB, 0, gcPercent},
		{"growing", time.Minute, 100 * MiB, 0, gcPercent},
		{"a little less", 2 * time.Minute, 80 * MiB, 0, gcPercent},
		{"half of it", 2 * time.Minute, 50 * MiB, 0, 100},
		{"less, with roots", 2 * time.Minute, 30 * MiB, 10 * MiB, 175},
		{"nearly nothing", 3 * time.Minute, MiB, 0, gcPercentMost},
		{"nothing", 3 * time.Minute, 0, 0, gcPercentMost},
		{"just before it is forgotten", time.Minute + heapKept - 1, 40 * MiB, 0, 150},
		{"forgotten", 2*time.Minute + heapKept, 40 * MiB, 0, gcPercent},
		{"less again", 3*time.Minute + heapKept, 20 * MiB, 0, 100},
		{"at rest", 3*time.Minute + heapKept + busyTime, 20 * MiB, 0, 100},
		{"busy", 3*time.Minute + heapKept + 2*busyTime - 1, 20 * MiB, 0, (heapBusy - 20*MiB) * 100 / (20 * MiB)},
		{"busy, with more", 3*time.Minute + heapKept + 2*busyTime, 60 * MiB, 0, gcPercent},
		{"at rest with more", 4*time.Minute + heapKept, 40 * MiB, 0, 50},
	} {
		if got := pace.percent(step.live, step.roots, begun.Add(step.after)); got != step.want {
			t.Errorf("%s: GOGC is %d, want %d", step.name, got, step.want)
		}
	}
}

func TestCollectionsOfGarbageAreTold(t *testing.T) {
	told := make(chan struct{}, 1)
	afterEveryGC(func() {
		select {
		case told <- struct{}{}:
		default:
		}
	})
	for i := range 3 {
		// One that ends before the last one was told is not told by itself.
		for deadline := time.Now().Add(time.Minute); len(told) == 0; runtime.GC() {
			if time.Now().After(deadline) {
				t.Fatalf("told %d times, want 3", i)
			}
		}
		<-told
	}
	if live, roots := heapFound(); live == 0 || roots == 0 {
		t.Errorf("the collection found %d bytes from roots of %d", live, roots)
	}
}
