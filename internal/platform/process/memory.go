package process

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// gcPercent is how much more memory than its live heap a process may use, in percent. It is half of Go's default. Most
	// of the live heap are cached objects, which live long. With 65, manager and provider together used 263 MiB for 5,000
	// machines, and their budget is 250 MiB (go run ./bench --machines 5000 --limit=false --passes).
	gcPercent = 50
	// gcPercentMost is the greatest value of GOGC that heapReserve may cause.
	gcPercentMost = 1000
	// heapReserve is how long the heap may grow to its recent maximum. While a fleet is deleted, there is much to do and
	// the live heap shrinks. Returning memory at once would cause more and more garbage collections.
	heapReserve = 5 * time.Minute
	// heapSmall is the size up to which the heap may be twice the live heap, as by Go's default. Below it, gcPercent would
	// save little memory.
	heapSmall = 48 << 20
)

// SpareMemory trades a little processor time for memory. The heap may grow to the largest of three values: the live
// heap and gcPercent, the live heap's maximum during the last minutes, and twice the live heap but at most heapSmall.
// It does nothing if the environment variable GOGC is set. It is called once.
func SpareMemory() {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(gcPercent)
	pace := heapPace{}
	afterEveryGC(func() {
		live, roots := lastCollection()
		debug.SetGCPercent(pace.percent(live, roots, time.Now()))
	})
}

// heapPace decides how far the heap may grow.
type heapPace struct {
	most  uint64    // largest live heap recently, in bytes
	since time.Time // when it was measured
}

// percent returns the value of GOGC for the sizes of the live heap and of the roots, both in bytes.
func (p *heapPace) percent(live, roots uint64, now time.Time) int {
	if live >= p.most || now.Sub(p.since) >= heapReserve {
		p.most, p.since = live, now
	}
	goal := max(p.most, min(2*live, heapSmall), live)
	return int(max(gcPercent, min((goal-live)*100/max(live+roots, 1), gcPercentMost)))
}

// lastCollection returns the sizes of the live heap and of the roots that the last garbage collection found, in bytes.
func lastCollection() (live, roots uint64) {
	found := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"}}
	metrics.Read(found)
	return found[0].Value.Uint64(), found[1].Value.Uint64() + found[2].Value.Uint64()
}

// afterEveryGC calls f after each garbage collection, until the process ends.
func afterEveryGC(f func()) {
	type sentinel struct{ _ [16]byte } // Go packs smaller objects together, which would delay the finalizer.
	var arm func(*sentinel)
	arm = func(s *sentinel) {
		runtime.SetFinalizer(s, func(s *sentinel) {
			f()
			arm(s)
		})
	}
	arm(new(sentinel))
}
