package process

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// gcPercent is how much a process may hold beyond what it uses, in percent: half of Go's default. Most of what is
	// used are cached objects, which live long. With 65, manager and provider together took 263 MiB for 5,000 machines
	// (go run ./bench --machines 5000 --limit=false --passes), and their budget is 250 MiB.
	gcPercent = 50
	// gcPercentMost bounds what heapReserve makes of it.
	gcPercentMost = 1000
	// heapReserve is how long a process lets its heap grow to what it once used. While a fleet is deleted there is much
	// to do and ever less to hold: who gave memory back at once would collect garbage all the more often.
	heapReserve = 5 * time.Minute
	// heapSmall is up to where the heap may be twice what is used, as Go has it: of little, half is not much.
	heapSmall = 48 << 20
)

// SpareMemory trades a little processor time for memory: the heap grows to what is used and gcPercent, or to what was
// used in the last minutes, or to twice what is used but no more than heapSmall, whichever is most. The environment
// variable GOGC, which Go itself knows, goes before. It is called once.
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
}

// percent returns the GOGC for a heap of which live bytes were found in use, from roots of as many bytes.
func (p *heapPace) percent(live, roots uint64, now time.Time) int {
	if live >= p.most || now.Sub(p.since) >= heapReserve {
		p.most, p.since = live, now
	}
	goal := max(p.most, min(2*live, heapSmall), live)
	return int(max(gcPercent, min((goal-live)*100/max(live+roots, 1), gcPercentMost)))
}

// heapFound returns what the last collection of garbage found, as percent takes it.
func heapFound() (live, roots uint64) {
	found := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"}}
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
