package ui

import (
	"context"
	"sync"
	"time"
)

const (
	// minPause is the minimum time for which the hub collects changes before it takes a snapshot.
	minPause = 250 * time.Millisecond
	// rereadPeriod is the time after which the hub takes a snapshot even if no change was reported. This is necessary
	// because Leases are not watched.
	rereadPeriod = 10 * time.Second
	// readTimeout is the maximum time for one read. After this time, the pages report that the cluster does not answer.
	readTimeout = 10 * time.Second
	// pauseFactor determines the pause after each read: the hub pauses for pauseFactor times the duration of the read.
	// This limits the CPU usage of this computer if a large fleet changes all the time.
	pauseFactor = 4
)

// hub stores the latest snapshot, and notifies its subscribers when there is a new snapshot.
type hub struct {
	source Source
	now    func() time.Time

	mu          sync.Mutex
	last        *Snapshot
	subscribers map[chan uint64]struct{}
}

func newHub(source Source, now func() time.Time) *hub {
	return &hub{source: source, now: now, subscribers: map[chan uint64]struct{}{}}
}

// run takes snapshots until ctx ends. The first snapshot must exist before run is called.
func (h *hub) run(ctx context.Context) {
	reread := time.NewTicker(rereadPeriod)
	defer reread.Stop()
	pause := minPause
	for {
		changed := false
		select {
		case <-ctx.Done():
			return
		case <-h.source.Changed():
			changed = true
			if !wait(ctx, pause) {
				return
			}
		case <-reread.C:
		}
		begun := h.now()
		_ = h.read(ctx, changed) // If an error occurs, the hub keeps the previous snapshot.
		pause = max(minPause, pauseFactor*h.now().Sub(begun))
	}
}

// wait waits for the given duration. If ctx ends earlier, wait returns false.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// read takes a snapshot. If the cluster does not answer, the new snapshot has the content of the previous snapshot,
// with the time at which the connection was lost.
func (h *hub) read(ctx context.Context, changed bool) error {
	reading, end := context.WithTimeout(ctx, readTimeout)
	facts, err := h.source.Facts(reading)
	end()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	before := h.snapshot()
	var next *Snapshot
	switch {
	case err == nil:
		next = newSnapshot(facts, h.now())
	case before == nil:
		return err
	default:
		same := *before
		next = &same
	}
	next.LostSince, next.LostWhy = h.source.Lost()
	if err != nil && next.LostSince.IsZero() {
		next.LostSince, next.LostWhy = h.now(), err.Error()
	}
	next.Version = 1
	if before != nil {
		next.Version = before.Version
		if changed || !next.sameFleet(before) {
			next.Version++
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = next
	if before != nil && next.Version == before.Version {
		return nil
	}
	for subscriber := range h.subscribers {
		select {
		case <-subscriber: // Only the latest version counts.
		default:
		}
		subscriber <- next.Version
	}
	return nil
}

// snapshot returns the latest snapshot, or nil if there is no snapshot yet.
func (h *hub) snapshot() *Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// subscribe returns a channel that receives the version of each later snapshot. The caller must call end to
// unsubscribe.
func (h *hub) subscribe() (versions <-chan uint64, end func()) {
	// The channel can hold only one version. If a subscriber is slow, it receives only the latest version.
	c := make(chan uint64, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscribers[c] = struct{}{}
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subscribers, c)
	}
}
