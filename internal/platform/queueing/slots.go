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
	limit   int
	trigger Trigger

	mu       sync.Mutex
	acquired map[types.NamespacedName]bool
	// waiting contains the waiting objects in the order of arrival. If n slots are free, the first n objects have been
	// enqueued.
	waiting []types.NamespacedName
}

// NewSlots returns limit slots, but at least one.
func NewSlots(limit int) *Slots {
	return &Slots{limit: max(limit, 1), acquired: map[types.NamespacedName]bool{}}
}

// Limit returns the number of slots.
func (s *Slots) Limit() int { return s.limit }

// Acquire gives an object a slot, unless the free slots belong to objects that arrived earlier. An object keeps the
// slot that it already has.
func (s *Slots) Acquire(object types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acquired[object] {
		return true
	}
	position := slices.Index(s.waiting, object)
	if position < 0 {
		position = len(s.waiting)
		s.waiting = append(s.waiting, object)
	}
	if position >= s.limit-len(s.acquired) {
		return false
	}
	s.waiting = slices.Delete(s.waiting, position, position+1)
	s.acquired[object] = true
	return true
}

// Occupy gives a slot to an object whose operation was begun by another process. It does so even if no slot is free.
func (s *Slots) Occupy(object types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acquired[object] = true
	s.waiting = slices.DeleteFunc(s.waiting, func(w types.NamespacedName) bool { return w == object })
}

// Release gives up an object's slot or its position in the queue, if it has one.
func (s *Slots) Release(object types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acquired[object] {
		delete(s.acquired, object)
	} else if position := slices.Index(s.waiting, object); position >= 0 {
		s.waiting = slices.Delete(s.waiting, position, position+1)
	} else {
		return
	}
	for _, next := range s.waiting[:min(max(s.limit-len(s.acquired), 0), len(s.waiting))] {
		s.trigger.Enqueue(next)
	}
}

// Source returns the source that enqueues objects when they can have a slot.
func (s *Slots) Source() source.Source { return s.trigger.Source() }
