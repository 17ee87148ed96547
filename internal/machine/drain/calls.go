package drain

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// slowCall is the duration from which an eviction or deletion is slow. Its namespace then counts as slow until slowFor
	// after the end of the call. The usual cause is an admission webhook that does not answer.
	slowCall = 3 * time.Second
	slowFor  = time.Minute
)

// calls tracks the evictions and deletions in progress, so that a webhook that hangs blocks only its own namespaces.
// All slow namespaces together may use a quarter of the slots, and a call that hangs uses no slot.
type calls struct {
	mu        sync.Mutex
	slowLimit int // the maximum number of calls in progress for all slow namespaces
	inFlight  []call
	// slow is the time until which a namespace counts as slow after a slow call.
	slow map[string]time.Time
}

// call is an eviction or deletion in progress.
type call struct {
	namespace string
	began     time.Time
	action    Action
}

func newCalls(slots int) *calls {
	return &calls{slowLimit: max(slots/4, 1), slow: map[string]time.Time{}}
}

// begin reports whether a call for a pod of the namespace may be sent now. If so, end or cancel must follow.
func (c *calls) begin(namespace string, action Action, now time.Time) (call, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isSlow(namespace, now) {
		n := 0
		for _, other := range c.inFlight {
			if c.isSlow(other.namespace, now) {
				n++
			}
		}
		if n >= c.slowLimit {
			return call{}, false
		}
	}
	begun := call{namespace, now, action}
	c.inFlight = append(c.inFlight, begun)
	return begun, true
}

// end records that a call has ended.
func (c *calls) end(over call, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(over.began) >= slowCall {
		c.slow[over.namespace] = now.Add(slowFor)
	} else {
		delete(c.slow, over.namespace)
	}
	c.remove(over)
}

// cancel withdraws a call that was not sent.
func (c *calls) cancel(begun call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(begun)
}

func (c *calls) remove(over call) {
	if i := slices.Index(c.inFlight, over); i >= 0 {
		c.inFlight = slices.Delete(c.inFlight, i, i+1)
	}
}

// hanging returns how many evictions have been in progress for slowCall or longer.
func (c *calls) hanging(now time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.inFlight {
		if one.action == Evict && now.Sub(one.began) >= slowCall {
			n++
		}
	}
	return n
}

// slowLast returns the steps with the given action. Steps in slow namespaces come last.
func (c *calls) slowLast(steps []Step, action Action, now time.Time) []Step {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.slow, func(_ string, until time.Time) bool { return !now.Before(until) })
	var quick, slow []Step
	for _, s := range steps {
		switch {
		case s.Action != action:
		case c.isSlow(s.Pod.Namespace, now):
			slow = append(slow, s)
		default:
			quick = append(quick, s)
		}
	}
	return slices.Concat(quick, slow)
}

func (c *calls) isSlow(namespace string, now time.Time) bool {
	return now.Before(c.slow[namespace]) || slices.ContainsFunc(c.inFlight, func(one call) bool {
		return one.namespace == namespace && now.Sub(one.began) >= slowCall
	})
}
