// Package objectstate stores what a controller remembers of objects between its passes.
package objectstate

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Store contains a value for each object that a controller remembers. A value belongs to one object, so it does not
// apply to another object of the same name. The zero value of T means that nothing is remembered, and uses no memory.
// The zero Store is empty and ready to use.
type Store[T comparable] struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]entry[T]
}

type entry[T comparable] struct {
	uid types.UID
	// created is the creation time of the object in seconds since 1970.
	created int64
	// value is a pointer, because a map stores large values less compactly. The value is immutable.
	value *T
}

// Get returns what is remembered of the object.
func (s *Store[T]) Get(o client.Object) (value T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[client.ObjectKeyFromObject(o)]; e.value != nil && e.uid == o.GetUID() {
		return *e.value
	}
	return value
}

// Update changes the state that the Store holds for the object. The object may no longer exist. If a newer object has
// the same name, Update changes nothing.
func (s *Store[T]) Update(o client.Object, change func(*T)) {
	uid, created := o.GetUID(), o.GetCreationTimestamp().Unix()
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	e := s.entries[key]
	switch {
	case e.value == nil || e.uid != uid && e.created <= created:
		e = entry[T]{uid: uid, created: created, value: new(T)}
	case e.uid != uid:
		return
	}
	s.store(key, e, change)
}

// UpdateKnown changes what is remembered of the object with the given name. If nothing is remembered, UpdateKnown
// changes nothing.
func (s *Store[T]) UpdateKnown(key types.NamespacedName, change func(*T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[key]; e.value != nil {
		s.store(key, e, change)
	}
}

func (s *Store[T]) store(key types.NamespacedName, e entry[T], change func(*T)) {
	value, nothing := *e.value, *new(T)
	if change(&value); value == nothing {
		delete(s.entries, key)
		return
	}
	if s.entries == nil {
		s.entries = map[types.NamespacedName]entry[T]{}
	}
	e.value = &value
	s.entries[key] = e
}

// Forget removes what is remembered of the object with the given name. A controller must call it when the object is
// gone.
func (s *Store[T]) Forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, key)
}

// Len returns the number of objects of which something is remembered.
func (s *Store[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}
