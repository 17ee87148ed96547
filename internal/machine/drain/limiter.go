package drain

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Limiter bounds how many drains send evictions at the same time. A drain sends them one after the other, so that this
// is also the number of evictions in flight. Nobody blocks: who gets no place is queued, goes on with something else,
// and is called when a place is free and it is its turn.
type Limiter struct {
	mu    sync.Mutex
	slots int
	free  int
	queue []waiting
}

type waiting struct {
	machine types.NamespacedName
	call    func(types.NamespacedName)
	called  bool
}

// NewLimiter returns a limiter of n places, at least 1.
func NewLimiter(n int) *Limiter {
	return &Limiter{slots: max(n, 1), free: max(n, 1)}
}

// acquire takes a place for the machine, which must be released. If there is none, or others have waited longer, the
// machine is queued and call will be called with it, from another goroutine. Of the places that are taken, as many as
// hang do not count; nobody is called when that changes.
func (l *Limiter) acquire(machine types.NamespacedName, hanging int, call func(types.NamespacedName)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.position(machine)
	if i < 0 {
		l.queue = append(l.queue, waiting{machine: machine, call: call})
		i = len(l.queue) - 1
	}
	if i >= l.free+hanging {
		return false
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	l.free--
	return true
}

// release gives a place back.
func (l *Limiter) release() {
	l.mu.Lock()
	l.free++
	calls := l.due()
	l.mu.Unlock()
	for _, w := range calls {
		w.call(w.machine)
	}
}

// withdraw takes a machine out of the queue, so that it does not happen that it holds up those behind it.
func (l *Limiter) withdraw(machine types.NamespacedName) {
	l.mu.Lock()
	var calls []waiting
	if i := l.position(machine); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
		calls = l.due()
	}
	l.mu.Unlock()
	for _, w := range calls {
		w.call(w.machine)
	}
}

// due returns those in the queue for those that a place is free and who do not know it yet.
func (l *Limiter) due() []waiting {
	var calls []waiting
	for i := range min(max(l.free, 0), len(l.queue)) {
		if !l.queue[i].called {
			l.queue[i].called = true
			calls = append(calls, l.queue[i])
		}
	}
	return calls
}

func (l *Limiter) position(machine types.NamespacedName) int {
	return slices.IndexFunc(l.queue, func(w waiting) bool { return w.machine == machine })
}
