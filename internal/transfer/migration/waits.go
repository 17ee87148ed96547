package migration

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// wait is a condition for which a phase of a Migration waits.
type wait struct {
	of   types.UID
	what string
}

// The conditions.
const (
	untilPaused      = "no provider acts on a Machine"
	untilEmpty       = "no old object exists"
	untilNothingLeft = "there is nothing left to do"
	untilChange      = "the troubles do not change"
)

// maxRetryInterval is the maximum time between two passes of a migration that has troubles. This time must be shorter
// than 15 seconds. Some old controllers ignore the duration of a Lease, and acquire a Lease that was not renewed for 15
// seconds.
const maxRetryInterval = 2 * leaseRenewal

// count is a number of machines together with the time at which it last changed.
type count struct {
	n    int
	from time.Time
}

// metFor returns the time for which a condition has been met without interruption, as far as this process has observed.
// The argument what identifies the condition, and met is true if the condition is met now.
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

// unchangedFor returns the time for which the number n of the current phase has not changed, as far as this process has
// observed.
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

// requeueDelay returns the delay of the next pass. While there are troubles and nothing changes, the delay grows,
// because an administrator must act, and because each pass reads all objects.
func (p *pass) requeueDelay(changed bool) time.Duration {
	return max(p.requeueAfter, min(p.metFor(p.migration, untilChange, p.troubleCount > 0 && !changed), maxRetryInterval))
}

// formerLeaderDone reports whether every former leader has certainly stopped acting in an earlier phase. If the host of
// a former leader is suspended during a pass, the former leader continues this pass after the suspension. For a moment,
// it still considers itself the leader. If the fence were already down, this former leader could create Machines. This
// process may itself be the former leader that was suspended. In that case, it loses its leadership before
// formerLeaderDone returns true. The pass that calls formerLeaderDone has already read everything that the former
// leader has written.
func (p *pass) formerLeaderDone() bool {
	left := p.Timing.FormerLeader - p.metFor(p.migration, untilNothingLeft, true)
	if left > 0 {
		p.requeueAfter = left
	}
	return left <= 0
}

// resetWaits discards the observations about the conditions for which a Migration waits. The caller holds mu.
func (r *Reconciler) resetWaits(uid types.UID) {
	delete(r.counts, uid)
	maps.DeleteFunc(r.waits, func(w wait, _ time.Time) bool { return w.of == uid })
}
