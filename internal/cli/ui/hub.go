package ui

import (
	"context"
	"sync"
	"time"
)

const (
	// minPause is how long the hub collects changes before it takes a snapshot.
	minPause = 250 * time.Millisecond
	// rereadPeriod is how often the hub takes a snapshot without a change, because Leases are not watched.
	rereadPeriod = 10 * time.Second
	// readTimeout limits the time of one read, so that a cluster that does not answer is reported.
	readTimeout = 10 * time.Second
	// pauseFactor is the ratio of the pause between two reads to the time of a read. It keeps the load of this machine low
	// if a large fleet changes all the time.
	pauseFactor = 4
)

// hub has the latest snapshot, and notifies subscribers of each new one.
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

// run takes snapshots until ctx ends. The first snapshot must exist already.
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
		_ = h.read(ctx, changed) // After an error, the previous snapshot stays.
		pause = max(minPause, pauseFactor*h.now().Sub(begun))
	}
}

// wait waits for a duration. It returns false if ctx ends before that.
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

// read takes a snapshot. If the cluster does not answer, the content of the previous snapshot stays, marked as lost.
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

// snapshot returns the latest snapshot, or nil before the first.
func (h *hub) snapshot() *Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// subscribe returns a channel that receives the versions of later snapshots. Call end to unsubscribe.
func (h *hub) subscribe() (versions <-chan uint64, end func()) {
	// The channel has space for one version, so a slow subscriber gets only the latest.
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
