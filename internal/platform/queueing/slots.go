package queueing

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Slots bound how many operations on objects are under way at a time, such as creations at the cloud. No worker is
// blocked: an object without a slot waits in a queue, and is enqueued at its controller when it can have one.
//
// A slot, or a position in the queue, belongs to an object until it is released. Whoever has no use for it any more
// releases it, also after an error, so that no slot is lost by an object that does not come back.
type Slots struct {
	pool *pool
	// controller is the index in pool.triggers of the controller whose objects these are.
	controller int
}

// pool is what the controllers share that share a limit.
type pool struct {
	limit int

	mu       sync.Mutex
	triggers []*Trigger
	acquired map[operation]bool
	// waiting is in the order of arrival. The first of them, as many as slots are free, have been enqueued.
	waiting []operation
}

// operation is that of one controller on one object.
type operation struct {
	controller int
	object     types.NamespacedName
}

// NewSlots returns that many slots, at least one.
func NewSlots(limit int) *Slots {
	return &Slots{pool: &pool{limit: max(limit, 1), triggers: []*Trigger{{}}, acquired: map[operation]bool{}}}
}

// Share returns the same slots for the objects of another controller. It must be called before any slot is acquired.
func (s *Slots) Share() *Slots {
	s.pool.triggers = append(s.pool.triggers, &Trigger{})
	return &Slots{pool: s.pool, controller: len(s.pool.triggers) - 1}
}

// Limit returns the number of slots.
func (s *Slots) Limit() int { return s.pool.limit }

// Acquire gives an object a slot, unless the free ones belong to objects that came first. An object that has one keeps
// it.
func (s *Slots) Acquire(object types.NamespacedName) bool { return s.AcquireBeyond(object, 0) }

// AcquireBeyond is like Acquire, but as if there were that many slots more. Nobody is enqueued when their number
// changes.
func (s *Slots) AcquireBeyond(object types.NamespacedName, more int) bool {
	p, o := s.pool, operation{s.controller, object}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.acquired[o] {
		return true
	}
	position := slices.Index(p.waiting, o)
	if position < 0 {
		position = len(p.waiting)
		p.waiting = append(p.waiting, o)
	}
	if position >= p.limit-len(p.acquired)+more {
		return false
	}
	p.waiting = slices.Delete(p.waiting, position, position+1)
	p.acquired[o] = true
	return true
}

// Occupy counts an operation that another process began, whether or not there is a slot for it.
func (s *Slots) Occupy(object types.NamespacedName) {
	p, o := s.pool, operation{s.controller, object}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acquired[o] = true
	p.waiting = slices.DeleteFunc(p.waiting, func(w operation) bool { return w == o })
}

// Release gives up an object's slot, or its position in the queue, if it has one.
func (s *Slots) Release(object types.NamespacedName) {
	p, o := s.pool, operation{s.controller, object}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.acquired[o] {
		delete(p.acquired, o)
		p.enqueueNext()
		return
	}
	p.withdraw(o)
}

// Withdraw gives up an object's position in the queue, if it has one. A slot that it has stays its own: the operation
// is still under way.
func (s *Slots) Withdraw(object types.NamespacedName) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.pool.withdraw(operation{s.controller, object})
}

func (p *pool) withdraw(o operation) {
	if position := slices.Index(p.waiting, o); position >= 0 {
		p.waiting = slices.Delete(p.waiting, position, position+1)
		p.enqueueNext()
	}
}

func (p *pool) enqueueNext() {
	for _, next := range p.waiting[:min(max(p.limit-len(p.acquired), 0), len(p.waiting))] {
		p.triggers[next.controller].Enqueue(next.object)
	}
}

// Source enqueues the objects that can have a slot now.
func (s *Slots) Source() source.Source { return s.pool.triggers[s.controller].Source() }
