// Package keylock provides locks for keys. A locked key never blocks another key. The locks of k8s.io/utils/keymutex
// share a few mutexes among all keys, so one slow API server could block unrelated callers.
package keylock

import "sync"

// Locks contains the locks of all keys. The zero value is ready to use.
type Locks struct {
	mu   sync.Mutex
	keys map[string]*lock
}

type lock struct {
	sync.Mutex
	// users counts the callers that hold or await the lock. The mutex Locks.mu guards this field.
	users int
}

// Lock locks a key and returns the function that unlocks it.
func (l *Locks) Lock(key string) (unlock func()) {
	l.mu.Lock()
	k := l.keys[key]
	if k == nil {
		if l.keys == nil {
			l.keys = map[string]*lock{}
		}
		k = &lock{}
		l.keys[key] = k
	}
	k.users++
	l.mu.Unlock()
	k.Lock()
	return func() {
		k.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.keys, key)
		}
	}
}
