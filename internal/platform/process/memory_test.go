package process

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
		{"at first", 0, 10 * MiB, 0, 100},
		{"with roots", 0, 10 * MiB, 10 * MiB, 50},
		{"growing", time.Second, heapSmall / 2, 0, 100},
		{"no longer small", time.Second, 28 * MiB, 0, 71},
		{"large", time.Second, 100 * MiB, 0, gcPercent},
		{"a little less", 2 * time.Second, 80 * MiB, 0, gcPercent},
		{"half of it", 2 * time.Second, 50 * MiB, 0, 100},
		{"less, with roots", 2 * time.Second, 30 * MiB, 10 * MiB, 175},
		{"nearly nothing", 3 * time.Second, MiB, 0, gcPercentMost},
		{"nothing", 3 * time.Second, 0, 0, gcPercentMost},
		{"just before it is forgotten", time.Second + heapReserve - 1, 40 * MiB, 0, 150},
		{"forgotten", time.Second + heapReserve, 40 * MiB, 0, gcPercent},
		{"less again", 2*time.Second + heapReserve, 16 * MiB, 0, 150},
	} {
		if got := pace.percent(step.live, step.roots, begun.Add(step.after)); got != step.want {
			t.Errorf("%s: GOGC is %d, want %d", step.name, got, step.want)
		}
	}
}

func TestGarbageCollectionsAreLogged(t *testing.T) {
	reported := make(chan struct{}, 1)
	afterEveryGC(func() {
		select {
		case reported <- struct{}{}:
		default:
		}
	})
	for i := range 3 {
		// One that ends before the last one was reported is not reported by itself.
		for deadline := time.Now().Add(time.Minute); len(reported) == 0; runtime.GC() {
			if time.Now().After(deadline) {
				t.Fatalf("reported %d times, want 3", i)
			}
		}
		<-reported
	}
	if live, roots := heapFound(); live == 0 || roots == 0 {
		t.Errorf("the collection found %d bytes from roots of %d", live, roots)
	}
}
