package drain

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// slowCall is how long an eviction or deletion takes in a namespace that counts as slow from then on, until slowFor
	// after its end. The usual cause is an admission webhook that does not answer.
	slowCall = 3 * time.Second
	slowFor  = time.Minute
)

// calls knows which evictions and deletions are under way, so that a webhook that hangs holds up its own namespaces and
// nobody else's: namespaces that are slow have a quarter of the places together, and a call that hangs takes no place.
type calls struct {
	mu       sync.Mutex
	quarter  int
	underWay []call
	// slow is until when a namespace counts as slow after a call that was.
	slow map[string]time.Time
}

// call is an eviction or deletion that is under way.
type call struct {
	namespace string
	began     time.Time
	action    Action
}

func newCalls(slots int) *calls {
	return &calls{quarter: max(slots/4, 1), slow: map[string]time.Time{}}
}

// begin reports whether another call for a pod of the namespace may be made now. It must be followed by end or cancel.
func (c *calls) begin(namespace string, action Action, now time.Time) (call, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isSlow(namespace, now) {
		n := 0
		for _, other := range c.underWay {
			if c.isSlow(other.namespace, now) {
				n++
			}
		}
		if n >= c.quarter {
			return call{}, false
		}
	}
	begun := call{namespace, now, action}
	c.underWay = append(c.underWay, begun)
	return begun, true
}

// end shows that a call is over.
func (c *calls) end(over call, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(over.began) >= slowCall {
		c.slow[over.namespace] = now.Add(slowFor)
	} else {
		delete(c.slow, over.namespace)
	}
	c.leave(over)
}

// cancel takes a begin back without a call.
func (c *calls) cancel(begun call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leave(begun)
}

func (c *calls) leave(over call) {
	if i := slices.Index(c.underWay, over); i >= 0 {
		c.underWay = slices.Delete(c.underWay, i, i+1)
	}
}

// hanging returns how many evictions have been under way for longer than they usually are.
func (c *calls) hanging(now time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.underWay {
		if one.action == Evict && now.Sub(one.began) >= slowCall {
			n++
		}
	}
	return n
}

// slowLast returns the steps of an action, those in namespaces that are slow after the others.
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
	return now.Before(c.slow[namespace]) || slices.ContainsFunc(c.underWay, func(one call) bool {
		return one.namespace == namespace && now.Sub(one.began) >= slowCall
	})
}
