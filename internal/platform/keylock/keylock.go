// Package keylock provides locks for keys. The locks of k8s.io/utils/keymutex share a few mutexes among all keys. A
// lock of this package never blocks another key. This matters because callers hold a lock while they call an API
// server, which may not answer for a long time.
package keylock

import "sync"

// Locks contains locks for any number of keys. The zero value is ready to use.
type Locks struct {
	mu   sync.Mutex
	keys map[string]*lock
}

type lock struct {
	sync.Mutex
	// users is the number of callers that hold the lock or wait for it; guarded by Locks.mu.
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
