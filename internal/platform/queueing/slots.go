package queueing

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Slots limits how many operations run at the same time, such as creations of instances in a cloud. Workers never
// block: an object without a free slot waits in a queue. When a slot becomes free for an object, Slots adds the object
// to the work queue of the controller.
//
// An object keeps its slot or its position in the queue until the controller calls Release, even after an error. If the
// controller never calls Release, no other object can use the slot.
type Slots struct {
	limit   int
	trigger Trigger

	mu       sync.Mutex
	acquired map[types.NamespacedName]bool
	// waitingObjects contains the waiting objects in order of arrival. If n slots are free, Slots has already added
	// the first n objects to the work queue of the controller.
	waitingObjects []types.NamespacedName
}

// NewSlots returns a Slots with the given number of slots, but at least one.
func NewSlots(limit int) *Slots {
	return &Slots{limit: max(limit, 1), acquired: map[types.NamespacedName]bool{}}
}

// Limit returns the number of slots.
func (s *Slots) Limit() int { return s.limit }

// Acquire reports whether an object has a slot. Acquire gives the object a free slot, unless all free slots are
// reserved for objects that arrived earlier.
func (s *Slots) Acquire(object types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acquired[object] {
		return true
	}
	position := slices.Index(s.waitingObjects, object)
	if position < 0 {
		position = len(s.waitingObjects)
		s.waitingObjects = append(s.waitingObjects, object)
	}
	if position >= s.limit-len(s.acquired) {
		return false
	}
	s.waitingObjects = slices.Delete(s.waitingObjects, position, position+1)
	s.acquired[object] = true
	return true
}

// Occupy gives a slot to an object whose operation another process started, even if no slot is free.
func (s *Slots) Occupy(object types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acquired[object] = true
	s.waitingObjects = slices.DeleteFunc(s.waitingObjects, func(w types.NamespacedName) bool { return w == object })
}

// Release frees the slot of an object, or removes the object from the queue. Releasing an unknown object does nothing.
func (s *Slots) Release(object types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acquired[object] {
		delete(s.acquired, object)
	} else if position := slices.Index(s.waitingObjects, object); position >= 0 {
		s.waitingObjects = slices.Delete(s.waitingObjects, position, position+1)
	} else {
		return
	}
	for _, next := range s.waitingObjects[:min(max(s.limit-len(s.acquired), 0), len(s.waitingObjects))] {
		s.trigger.Enqueue(next)
	}
}

// Source adds an object to its controller's queue when a slot for the object becomes free.
func (s *Slots) Source() source.Source { return s.trigger.Source() }
