package migration

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

type wait struct {
	of   types.UID
	what string
}

const (
	untilPaused      = "no provider acts on a Machine"
	untilEmpty       = "no old object exists"
	untilNothingLeft = "there is nothing left to do"
	untilChange      = "the troubles do not change"
)

// maxRetryInterval is the maximum time between two passes while there are troubles. Some old controllers ignore the
// duration of a Lease, and acquire it after 15 seconds without renewal.
const maxRetryInterval = 2 * leaseRenewal

type count struct {
	n    int
	from time.Time
}

// metFor returns how long this process has seen the condition met without interruption. The argument met is its current
// state.
func (r *Reconciler) metFor(m *v1beta1.Migration, what string, met bool) time.Duration {
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

// unchangedFor returns how long this process has seen the number n of the current phase unchanged.
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

// requeueDelay returns the delay of the next pass. Without progress it grows, because each pass reads all objects and
// an administrator must act.
func (p *pass) requeueDelay(changed bool) time.Duration {
	return max(p.requeueAfter, min(p.metFor(p.migration, untilChange, p.troubleCount > 0 && !changed), maxRetryInterval))
}

// formerLeaderDone reports whether every former leader has stopped acting in an earlier phase. A former leader whose
// host was suspended continues its pass and considers itself the leader for a moment. If the fence were already down,
// it could create Machines.
//
// If this process is that former leader, it loses its leadership before formerLeaderDone returns true. The calling pass
// has already read everything that a former leader has written.
func (p *pass) formerLeaderDone() bool {
	left := p.Timing.FormerLeader - p.metFor(p.migration, untilNothingLeft, true)
	if left > 0 {
		p.requeueAfter = left
	}
	return left <= 0
}

// resetWaits discards the observations about a Migration. The caller holds mu.
func (r *Reconciler) resetWaits(uid types.UID) {
	delete(r.counts, uid)
	maps.DeleteFunc(r.waits, func(w wait, _ time.Time) bool { return w.of == uid })
}
