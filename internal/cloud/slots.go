package cloud

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Slots bounds how many creations are under way at the cloud at a time. Nobody is blocked: who finds no place is
// reported so, queues up, and is triggered when it is its turn.
//
// A place and a turn belong to a machine until it leaves, which everybody does who has no use for them any more, also
// after an error: then nothing is ever lost by one that does not come back.
type Slots struct {
	limit int

	mu       sync.Mutex
	acquired map[types.NamespacedName]bool
	// waiting is in the order of arrival. The first of them, as many as places are free, have been triggered.
	waiting []types.NamespacedName
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// NewSlots returns that many places, at least one.
func NewSlots(limit int) *Slots {
	return &Slots{limit: max(limit, 1), acquired: map[types.NamespacedName]bool{}}
}

// Limit returns how many places there are.
func (p *Slots) Limit() int { return p.limit }

// Acquire gives a machine a place, unless those that are free are for others who came first. Who has one keeps it.
func (p *Slots) Acquire(machine types.NamespacedName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.acquired[machine] {
		return true
	}
	turn := slices.Index(p.waiting, machine)
	if turn < 0 {
		turn = len(p.waiting)
		p.waiting = append(p.waiting, machine)
	}
	if turn >= p.limit-len(p.acquired) {
		return false
	}
	p.waiting = slices.Delete(p.waiting, turn, turn+1)
	p.acquired[machine] = true
	return true
}

// Occupy counts a creation that is under way, whether or not there is a place for it: another process began it.
func (p *Slots) Occupy(machine types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acquired[machine] = true
	p.waiting = slices.DeleteFunc(p.waiting, func(w types.NamespacedName) bool { return w == machine })
}

// Release gives up a machine's place, or its turn, if it has one.
func (p *Slots) Release(machine types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	turn := slices.Index(p.waiting, machine)
	switch {
	case p.acquired[machine]:
		delete(p.acquired, machine)
	case turn >= 0:
		p.waiting = slices.Delete(p.waiting, turn, turn+1)
	default:
		return
	}
	if p.queue == nil {
		return
	}
	for _, next := range p.waiting[:min(max(p.limit-len(p.acquired), 0), len(p.waiting))] {
		p.queue.Add(reconcile.Request{NamespacedName: next})
	}
}

// Source is a source for the controller of Machines: those whose turn it is.
func (p *Slots) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.queue = queue
		return nil
	})
}
