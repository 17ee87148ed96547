package ui

import (
	"context"
	"sync"
	"time"
)

const (
	// settle is how long changes are gathered before the fleet is read again.
	settle = 250 * time.Millisecond
	// rereadAfter is when it is read again although nothing changed: leases of processes are not watched.
	rereadAfter = 10 * time.Second
	// readFor bounds what a reading asks of the cluster: one that does not answer must be reported.
	readFor = 10 * time.Second
	// restShare is how much longer than a reading takes the next one waits: a large fleet that changes all the time must
	// not keep this machine busy.
	restShare = 4
)

// hub has the last snapshot, and tells subscribers when there is another one.
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

// run makes snapshots until ctx ends. The first one must have been made before.
func (h *hub) run(ctx context.Context) {
	reread := time.NewTicker(rereadAfter)
	defer reread.Stop()
	pause := settle
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
		_ = h.read(ctx, changed) // After the first one there is always one to keep.
		pause = max(settle, restShare*h.now().Sub(begun))
	}
}

// wait returns false if ctx ends meanwhile.
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

// read makes a snapshot. Without an answer of the cluster the last one stays, marked as lost.
func (h *hub) read(ctx context.Context, changed bool) error {
	reading, end := context.WithTimeout(ctx, readFor)
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

// snapshot returns the last one, nil before the first.
func (h *hub) snapshot() *Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// subscribe returns a channel that receives the versions of later snapshots, and what ends that.
func (h *hub) subscribe() (versions <-chan uint64, end func()) {
	// It keeps one: who is slow gets the latest version only.
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
