package migration

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// wait is a condition that a phase of the Migration with the UID of waits for.
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

// maxRetryInterval is the longest time between two passes of a migration that has troubles. Old controllers whose
// clients ignore the duration of a Lease acquire a Lease that was not renewed for 15 seconds, so maxRetryInterval must
// be shorter than 15 seconds.
const maxRetryInterval = 2 * leaseRenewal

// count is a number of machines, and the time of its last change.
type count struct {
	n    int
	from time.Time
}

// metFor returns for how long the condition what has been met without a break, as observed by this process. met is true
// if it is met now.
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

// unchangedFor returns for how long a phase has counted the same number n, as observed by this process.
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

// requeueDelay returns when the next pass follows. With troubles, the delay grows as long as nothing changes, because
// an administrator must act and each pass reads all objects.
func (p *pass) requeueDelay(changed bool) time.Duration {
	return max(p.requeueAfter, min(p.metFor(p.migration, untilChange, p.troubleCount > 0 && !changed), maxRetryInterval))
}

// formerLeaderDone reports whether no former leader can still act in an earlier phase. A migrator whose host was
// suspended during a pass continues that pass when it resumes, and believes for a moment that it still leads. If the
// fence were down, it could create Machines. This process may itself be that migrator: then it loses its leadership
// before this function returns true. The pass that calls this function finds what the other migrator did meanwhile.
func (p *pass) formerLeaderDone() bool {
	left := p.Timing.FormerLeader - p.metFor(p.migration, untilNothingLeft, true)
	if left > 0 {
		p.requeueAfter = left
	}
	return left <= 0
}

// resetWaits forgets the times at which a phase began to wait for conditions. The caller holds mu.
func (r *Reconciler) resetWaits(uid types.UID) {
	delete(r.counts, uid)
	maps.DeleteFunc(r.waits, func(w wait, _ time.Time) bool { return w.of == uid })
}
