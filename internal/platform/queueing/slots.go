package queueing

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Slots limits how many operations on objects run at the same time, such as creations in the cloud. A worker is never
// blocked: an object without a slot waits in a queue, and is enqueued for its controller again when a slot is free for
// it.
//
// A slot, or a position in the queue, belongs to an object until it is released. A controller must release it when the
// object no longer needs it, even after an error. Otherwise the slot is lost.
type Slots struct {
	pool *pool
	// controller is the index in pool.triggers of the controller that owns the objects.
	controller int
}

// pool is the common state of the controllers that share a limit.
type pool struct {
	limit int

	mu       sync.Mutex
	triggers []*Trigger
	acquired map[operation]bool
	// waiting contains the waiting operations in the order of arrival. If n slots are free, the objects of the first n
	// operations have been enqueued for their controllers.
	waiting []operation
}

// operation is the operation of one controller on one object.
type operation struct {
	controller int
	object     types.NamespacedName
}

// NewSlots returns limit slots, but at least one.
func NewSlots(limit int) *Slots {
	return &Slots{pool: &pool{limit: max(limit, 1), triggers: []*Trigger{{}}, acquired: map[operation]bool{}}}
}

// Share returns the same slots for the objects of another controller. Call it before any slot is acquired.
func (s *Slots) Share() *Slots {
	s.pool.triggers = append(s.pool.triggers, &Trigger{})
	return &Slots{pool: s.pool, controller: len(s.pool.triggers) - 1}
}

// Limit returns the number of slots.
func (s *Slots) Limit() int { return s.pool.limit }

// Acquire gives an object a slot, unless the free slots belong to objects that arrived earlier. An object keeps the
// slot that it already has.
func (s *Slots) Acquire(object types.NamespacedName) bool { return s.AcquireBeyond(object, 0) }

// AcquireBeyond works like Acquire, but with some additional slots. The additional slots do not cause waiting objects
// to be enqueued.
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

// Occupy gives a slot to an object whose operation was begun by another process. It does so even if no slot is free.
func (s *Slots) Occupy(object types.NamespacedName) {
	p, o := s.pool, operation{s.controller, object}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acquired[o] = true
	p.waiting = slices.DeleteFunc(p.waiting, func(w operation) bool { return w == o })
}

// Release gives up an object's slot or its position in the queue, if it has one.
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

// Withdraw gives up an object's position in the queue, if it has one. The object keeps a slot, because its operation is
// still running.
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

// Source returns the source that enqueues objects when they can have a slot.
func (s *Slots) Source() source.Source { return s.pool.triggers[s.controller].Source() }
