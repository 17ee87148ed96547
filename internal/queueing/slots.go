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
	limit int

	mu       sync.Mutex
	acquired map[types.NamespacedName]bool
	// waiting is in the order of arrival. The first of them, as many as slots are free, have been enqueued.
	waiting []types.NamespacedName
	trigger Trigger
}

// NewSlots returns that many slots, at least one.
func NewSlots(limit int) *Slots {
	return &Slots{limit: max(limit, 1), acquired: map[types.NamespacedName]bool{}}
}

// Limit returns the number of slots.
func (s *Slots) Limit() int { return s.limit }

// Acquire gives an object a slot, unless the free ones belong to objects that came first. An object that has one keeps
// it.
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

// Occupy counts an operation that another process began, whether or not there is a slot for it.
func (s *Slots) Occupy(object types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acquired[object] = true
	s.waiting = slices.DeleteFunc(s.waiting, func(w types.NamespacedName) bool { return w == object })
}

// Release gives up an object's slot, or its position in the queue, if it has one.
func (s *Slots) Release(object types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	position := slices.Index(s.waiting, object)
	switch {
	case s.acquired[object]:
		delete(s.acquired, object)
	case position >= 0:
		s.waiting = slices.Delete(s.waiting, position, position+1)
	default:
		return
	}
	for _, next := range s.waiting[:min(max(s.limit-len(s.acquired), 0), len(s.waiting))] {
		s.trigger.Enqueue(next)
	}
}

// Source enqueues the objects that can have a slot now.
func (s *Slots) Source() source.Source { return s.trigger.Source() }
