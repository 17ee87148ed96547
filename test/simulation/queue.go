package simulation

import (
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/internal/platform/wiring"
)

// queue is the work queue of a controller, with the clock of the world. The simulation chooses which ready key is
// reconciled next.
type queue struct {
	now        func() time.Time
	ready      []reconcile.Request
	processing map[reconcile.Request]bool
	// dirtyKeys contains the keys that were added while they were being reconciled. They need another reconciliation.
	dirtyKeys map[reconcile.Request]bool
	delayed   map[reconcile.Request]time.Time
	failures  map[reconcile.Request]int
}

func newQueue(now func() time.Time) *queue {
	return &queue{
		now: now, processing: map[reconcile.Request]bool{}, dirtyKeys: map[reconcile.Request]bool{},
		delayed: map[reconcile.Request]time.Time{}, failures: map[reconcile.Request]int{},
	}
}

func (q *queue) clone(now func() time.Time) *queue {
	return &queue{
		now: now, ready: slices.Clone(q.ready), processing: maps.Clone(q.processing), dirtyKeys: maps.Clone(q.dirtyKeys),
		delayed: maps.Clone(q.delayed), failures: maps.Clone(q.failures),
	}
}

// Add implements workqueue.TypedInterface.
func (q *queue) Add(key reconcile.Request) {
	delete(q.delayed, key)
	if q.processing[key] {
		q.dirtyKeys[key] = true
		return
	}
	if !slices.Contains(q.ready, key) {
		q.ready = append(q.ready, key)
	}
}

// AddAfter implements workqueue.TypedDelayingInterface. If a key is added several times, the queue uses the earliest
// time.
func (q *queue) AddAfter(key reconcile.Request, d time.Duration) {
	if d <= 0 {
		q.Add(key)
		return
	}
	at := q.now().Add(d)
	if known, ok := q.delayed[key]; !ok || at.Before(known) {
		q.delayed[key] = at
	}
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *queue) AddRateLimited(key reconcile.Request) {
	d := wiring.FirstRetry << min(q.failures[key], 30)
	q.failures[key]++
	q.AddAfter(key, min(d, wiring.LongestRetry))
}

// Forget implements workqueue.TypedRateLimitingInterface.
func (q *queue) Forget(key reconcile.Request) { delete(q.failures, key) }

// NumRequeues implements workqueue.TypedRateLimitingInterface.
func (q *queue) NumRequeues(key reconcile.Request) int { return q.failures[key] }

// Len implements workqueue.TypedInterface.
func (q *queue) Len() int { return len(q.ready) }

// Get implements workqueue.TypedInterface.
func (q *queue) Get() (reconcile.Request, bool) { return q.take(0), false }

func (q *queue) take(i int) reconcile.Request {
	key := q.ready[i]
	q.ready = slices.Delete(q.ready, i, i+1)
	q.processing[key] = true
	return key
}

// Done implements workqueue.TypedInterface.
func (q *queue) Done(key reconcile.Request) {
	delete(q.processing, key)
	if q.dirtyKeys[key] {
		delete(q.dirtyKeys, key)
		q.Add(key)
	}
}

// ShutDown implements workqueue.TypedInterface.
func (q *queue) ShutDown() {}

// ShutDownWithDrain implements workqueue.TypedInterface.
func (q *queue) ShutDownWithDrain() {}

// ShuttingDown implements workqueue.TypedInterface.
func (q *queue) ShuttingDown() bool { return false }

func (q *queue) due() {
	var keys []reconcile.Request
	now := q.now()
	for key, at := range q.delayed {
		if !at.After(now) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b reconcile.Request) int {
		if c := q.delayed[a].Compare(q.delayed[b]); c != 0 {
			return c
		}
		return compareKeys(a.NamespacedName, b.NamespacedName)
	})
	for _, key := range keys {
		q.Add(key)
	}
}

func (q *queue) next() (at time.Time, any bool) {
	for _, t := range q.delayed {
		if !any || t.Before(at) {
			at, any = t, true
		}
	}
	return at, any
}
