package operator

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// gcPercent is how much a process may hold beyond what it uses, in percent: less than half of Go's default. Most of what is
	// used are cached objects, which live long.
	gcPercent = 40
	// gcPercentMost bounds what heapKept makes of it.
	gcPercentMost = 1000
	// heapKept is how long a process lets its heap grow to what it once used. While a fleet is deleted there is much to do
	// and ever less to hold: who gave memory back at once would collect garbage all the more often.
	heapKept = 5 * time.Minute
	// heapBusy is what a process may hold before it collects garbage at all if it last did less than busyTime ago. Where little
	// is held, garbage that soon amounts to gcPercent of it is worth less than the time to collect it.
	heapBusy = 48 << 20
	busyTime = 10 * time.Second
)

// SpareMemory trades a little processor time for memory: the heap grows to what is used and gcPercent, or to what was used in
// the last minutes or, while there is much to do, heapBusy if that is more. The environment variable GOGC, which Go itself knows, goes before. It is called once.
func SpareMemory() {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(gcPercent)
	pace := heapPace{}
	afterEveryGC(func() {
		live, roots := heapFound()
		debug.SetGCPercent(pace.percent(live, roots, time.Now()))
	})
}

// heapPace decides how far the heap may grow.
type heapPace struct {
	most  uint64    // bytes that were in use at once lately
	since time.Time // when they were
	last  time.Time // when garbage was last collected
}

// percent returns the GOGC for a heap of which live bytes were found in use, from roots of as many bytes.
func (p *heapPace) percent(live, roots uint64, now time.Time) int {
	if live >= p.most || now.Sub(p.since) >= heapKept {
		p.most, p.since = live, now
	}
	goal := p.most
	if now.Sub(p.last) < busyTime {
		goal = max(goal, heapBusy)
	}
	p.last = now
	return int(max(gcPercent, min((goal-live)*100/max(live+roots, 1), gcPercentMost)))
}

// heapFound returns what the last collection of garbage found, as percent takes it.
func heapFound() (live, roots uint64) {
	found := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(found)
	return found[0].Value.Uint64(), found[1].Value.Uint64() + found[2].Value.Uint64()
}

// afterEveryGC calls f after each collection of garbage, for as long as the process lives.
func afterEveryGC(f func()) {
	type sentinel struct{ _ [16]byte } // Not so small that it would share its memory with others.
	var arm func(*sentinel)
	arm = func(s *sentinel) {
		runtime.SetFinalizer(s, func(s *sentinel) {
			f()
			arm(s)
		})
	}
	arm(new(sentinel))
}
