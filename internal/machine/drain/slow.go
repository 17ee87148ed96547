package drain

import (
	"sync"
	"time"
)

// slowCall is the duration from which an eviction or deletion is slow.
const slowCall = 3 * time.Second

// slowNamespaces limits the calls (evictions and deletions) in slow namespaces, so that they leave workers to the
// drains of other pods. A namespace is slow if its last call was slow, usually because an admission webhook does not
// answer. It stays slow until a quick call ends and no other call is in flight.
type slowNamespaces struct {
	limit int // the number of calls in flight in all slow namespaces together

	mu       sync.Mutex
	inFlight map[string]int
	slow     map[string]bool
}

func newSlowNamespaces(workers int) *slowNamespaces {
	return &slowNamespaces{limit: max(workers/4, 1), inFlight: map[string]int{}, slow: map[string]bool{}}
}

// begin reports whether a call for a pod of the namespace may be sent now. If so, end must follow.
func (s *slowNamespaces) begin(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slow[namespace] {
		n := 0
		for slow := range s.slow {
			n += s.inFlight[slow]
		}
		if n >= s.limit {
			return false
		}
	}
	s.inFlight[namespace]++
	return true
}

// end records that a call has ended, and how long it took.
func (s *slowNamespaces) end(namespace string, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight[namespace]--; s.inFlight[namespace] == 0 {
		delete(s.inFlight, namespace)
	}
	if took >= slowCall {
		s.slow[namespace] = true
	} else if s.inFlight[namespace] == 0 {
		delete(s.slow, namespace)
	}
}

// isSlow reports whether a drain sends the calls of a namespace last.
func (s *slowNamespaces) isSlow(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slow[namespace]
}
