package migration

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

type wait struct {
	migration types.UID
	condition string
}

const (
	untilPaused      = "no provider acts on a Machine"
	untilEmpty       = "no old object exists"
	untilNothingLeft = "there is nothing left to do"
	untilChange      = "the list of troubles does not change"
)

// maxRetryInterval is the maximum time between two passes while there are troubles. Some old controllers ignore the
// duration of a Lease, and acquire it after 15 seconds without renewal.
const maxRetryInterval = 2 * leaseRenewal

// progress is the state that a migration has had since a point in time.
type progress struct {
	state string
	from  time.Time
}

// metFor returns for how long a condition has been true without interruption, as observed by this process. The argument
// isMet says whether the condition is true now.
func (r *Reconciler) metFor(m *v1beta1.Migration, condition string, isMet bool) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := wait{migration: m.UID, condition: condition}
	if !isMet {
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

// unchangedFor returns the time for which the state of the current phase, such as a counter, has been the same. A
// phase uses this function to notice that it makes no progress.
func (r *Reconciler) unchangedFor(m *v1beta1.Migration, state string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, found := r.counts[m.UID]
	if !found || last.state != state {
		last = progress{state: state, from: r.Clock.Now()}
		r.counts[m.UID] = last
	}
	return r.Clock.Since(last.from)
}

// requeueDelay returns the delay of the next pass. While the same troubles persist, the delay grows, because each pass
// reads all objects, and an administrator must act before the migration can continue.
func (p *pass) requeueDelay(changed bool) time.Duration {
	return max(p.requeueAfter, min(p.metFor(p.migration, untilChange, p.troubleCount > 0 && !changed), maxRetryInterval))
}

// formerLeaderDone reports whether the migrator has waited long enough for former leaders. A former leader whose host
// was suspended may continue a pass of an earlier phase, because it considers itself the leader for a moment. If the
// fence was removed during such a pass, the former leader could create Machines.
//
// This process may itself be the former leader. In that case, this process loses its leadership during the wait, so
// that formerLeaderDone never returns true in this process. After the wait, the calling pass has read everything that
// a former leader has written.
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
	maps.DeleteFunc(r.waits, func(w wait, _ time.Time) bool { return w.migration == uid })
}
