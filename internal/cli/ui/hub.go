package ui

import (
	"context"
	"sync"
	"time"
)

const (
	// minPause is how long the hub collects changes before a snapshot.
	minPause = 250 * time.Millisecond
	// rereadPeriod is the maximum time between two snapshots, because Leases are not watched.
	rereadPeriod = 10 * time.Second
	// readTimeout is the maximum time for one read. Then the pages report that the cluster does not answer.
	readTimeout = 10 * time.Second
	// pauseFactor determines the pause between two reads: the duration of the last read is multiplied by this factor.
	// The pause limits the CPU usage for a large fleet.
	pauseFactor = 4
)

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

// run takes snapshots until ctx ends. The caller must have taken the first snapshot with read.
func (h *hub) run(ctx context.Context) {
	reread := time.NewTicker(rereadPeriod)
	defer reread.Stop()
	pause := minPause
	for {
		changed := false
		select {
		case <-ctx.Done():
			return
		case <-h.source.ChangeEvents():
			changed = true
			if !wait(ctx, pause) {
				return
			}
		case <-reread.C:
		}
		begun := h.now()
		_ = h.read(ctx, changed) // After an error, the hub keeps the previous snapshot.
		pause = max(minPause, pauseFactor*h.now().Sub(begun))
	}
}

// wait returns false if ctx ends before the given duration.
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

// read takes a snapshot of the fleet. During an outage of the cluster, the new snapshot is a copy of the previous
// snapshot, with the time at which the cluster stopped answering.
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
	next.LostSince, next.LostWhy = h.source.Outage()
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
		case <-subscriber:
		default:
		}
		subscriber <- next.Version
	}
	return nil
}

func (h *hub) snapshot() *Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// subscribe returns a channel for the versions of later snapshots. The caller must call the function end when it no
// longer reads the channel.
func (h *hub) subscribe() (versions <-chan uint64, end func()) {
	// The channel holds one version: a subscriber that reads slowly skips older versions.
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
