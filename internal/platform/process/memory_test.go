package process

import (
	"runtime"
	"testing"
	"time"
)

func TestTheHeapMayGrowToItsRecentMaximum(t *testing.T) {
	const MiB = 1 << 20
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var pace heapPace
	for _, step := range []struct {
		name        string
		after       time.Duration
		live, roots uint64
		want        int
	}{
		{"at first", 0, 10 * MiB, 0, 100},
		{"with roots", 0, 10 * MiB, 10 * MiB, 50},
		{"growing", time.Second, heapSmall / 2, 0, 100},
		{"no longer small", time.Second, 28 * MiB, 0, 71},
		{"large", time.Second, 100 * MiB, 0, gcPercent},
		{"slightly smaller", 2 * time.Second, 80 * MiB, 0, gcPercent},
		{"half as large", 2 * time.Second, 50 * MiB, 0, 100},
		{"smaller, with roots", 2 * time.Second, 30 * MiB, 10 * MiB, 175},
		{"almost empty", 3 * time.Second, MiB, 0, gcPercentMost},
		{"empty", 3 * time.Second, 0, 0, gcPercentMost},
		{"just before the maximum expires", time.Second + heapReserve - 1, 40 * MiB, 0, 150},
		{"the maximum expired", time.Second + heapReserve, 40 * MiB, 0, gcPercent},
		{"smaller again", 2*time.Second + heapReserve, 16 * MiB, 0, 150},
	} {
		if got := pace.percent(step.live, step.roots, begun.Add(step.after)); got != step.want {
			t.Errorf("%s: GOGC is %d, want %d", step.name, got, step.want)
		}
	}
}

func TestAfterEveryGC(t *testing.T) {
	reported := make(chan struct{}, 1)
	afterEveryGC(func() {
		select {
		case reported <- struct{}{}:
		default:
		}
	})
	for i := range 3 {
		// A collection that ends before the previous one was reported has no report of its own.
		for deadline := time.Now().Add(time.Minute); len(reported) == 0; runtime.GC() {
			if time.Now().After(deadline) {
				t.Fatalf("f was called %d times, want 3", i)
			}
		}
		<-reported
	}
	if live, roots := lastCollection(); live == 0 || roots == 0 {
		t.Errorf("the collection found %d bytes from roots of %d", live, roots)
	}
}
