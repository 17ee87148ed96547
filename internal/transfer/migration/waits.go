package migration

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// wait is a condition that a phase waits for.
type wait struct {
	of   types.UID
	what string
}

// What is waited for.
const (
	untilPaused = "no provider acts on a Machine"
	untilEmpty  = "no old object exists"
	untilAlone  = "there is nothing left to do"
	untilChange = "troubles stay as they are"
)

// slowest is how seldom a migration that has troubles is tried: old controllers whose clients ignore the duration of a
// Lease take one that nobody has renewed for 15 seconds.
const slowest = 2 * leaseRenewal

// count is a number of machines, and since when it is the same.
type count struct {
	n    int
	from time.Time
}

// since returns for how long a condition has been met that a phase waits for, as seen by this process without a break.
func (r *Reconciler) since(m *v1beta1.Migration, what string, met bool) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := wait{of: m.UID, what: what}
	if !met {
		delete(r.waits, key)
		return 0
	}
	from, found := r.waits[key]
	if !found {
		from = r.Clock.Now()
		r.waits[key] = from
	}
	return r.Clock.Since(from)
}

// unchangedFor returns for how long a phase has counted the same number, as seen by this process.
func (r *Reconciler) unchangedFor(m *v1beta1.Migration, n int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, found := r.counts[m.UID]
	if !found || last.n != n {
		last = count{n: n, from: r.Clock.Now()}
		r.counts[m.UID] = last
	}
	return r.Clock.Since(last.from)
}

// paced returns when the next pass follows. Where there are troubles, that is the later the longer nothing has changed:
// somebody has to act, and each pass reads all objects.
func (p *pass) paced(changed bool) time.Duration {
	return max(p.again, min(p.since(p.migration, untilChange, p.counted > 0 && !changed), slowest))
}

// alone reports whether no other migrator acts any more in an earlier phase. One whose host was suspended in a pass
// goes on with that when it resumes, and takes itself for the leader for a while: behind an open fence it would make
// Machines. This process may be that one: then it ends before it is alone. What another one did meanwhile is found by
// the pass that asks.
func (p *pass) alone() bool {
	left := p.Timing.FormerLeader - p.since(p.migration, untilAlone, true)
	if left > 0 {
		p.again = left
	}
	return left <= 0
}

// restart drops since when a phase has waited for something. The caller has locked mu.
func (r *Reconciler) restart(uid types.UID) {
	delete(r.counts, uid)
	maps.DeleteFunc(r.waits, func(w wait, _ time.Time) bool { return w.of == uid })
}
