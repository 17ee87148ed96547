// Package keylock has locks for keys. Unlike those of k8s.io/utils/keymutex, which share a few mutexes among all keys,
// a lock never blocks another key: these are held over calls to an API server, which may not answer for a long time.
package keylock

import "sync"

// Locks are the locks of any number of keys. The zero value is ready to use.
type Locks struct {
	mu   sync.Mutex
	keys map[string]*lock
}

type lock struct {
	sync.Mutex
	// users hold the lock or wait for it; guarded by Locks.mu.
	users int
}

// Lock locks a key, and returns the function that unlocks it.
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
