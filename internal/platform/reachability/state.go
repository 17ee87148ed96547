package reachability

import (
	"slices"
	"time"
)

const (
	// failuresUntilUnreachable is how many consecutive checks must fail, because a single request may be lost.
	failuresUntilUnreachable = 2
	// maxOutages is the maximum number of stored outages. Controllers process an outage soon after it has ended.
	maxOutages = 32
)

// Outage is a period in which an API server did not answer. It begins with the last answer before the failure. It ends
// when the server answers again and the caches of this process have caught up.
type Outage struct{ From, To time.Time }

type State struct {
	// Unreachable means that the API server failed two checks in a row and has not answered since, or that it has never
	// answered.
	Unreachable bool
	// Since is when Unreachable last changed: the start of the first failed check, or the end of the first successful
	// check.
	Since time.Time
	// Refused means that an unreachable API server rejected the credentials of this process. It stays set until the end
	// of the outage, because several servers at one address may fail in different ways.
	Refused bool
	// Epoch counts the changes of Unreachable. A result of one epoch may be wrong in the next epoch.
	Epoch uint64
	// Past contains the last maxOutages outages that have ended, the oldest first.
	Past []Outage

	seen     time.Time // time of the last answer, or of the first check if there was no answer yet
	failing  time.Time // start of the first of the latest failed checks in a row
	failures int       // failed checks in a row
}

// Unknown returns the state of an API server before its first check. The server counts as unreachable.
func Unknown(now time.Time) State { return State{Unreachable: true, Since: now, seen: now} }

// Known reports whether the API server was checked at least once.
func (s State) Known() bool { return !s.Unreachable || s.failures > 0 }

// Failing reports whether the last check failed.
func (s State) Failing() bool { return s.failures > 0 }

// Observe returns the state after a check that began at sent and ended at now. An outage begins with the last
// successful check, because the API server may have failed at any time after it.
func (s State) Observe(sent, now time.Time, ok bool) State {
	if !ok {
		if s.failures++; s.failures == 1 {
			s.failing = sent
		}
		if !s.Unreachable && s.failures >= failuresUntilUnreachable {
			s.Unreachable, s.Since = true, s.failing
			s.Epoch++
		}
		return s
	}
	if s.Unreachable {
		if s.Known() {
			s.Past = append(slices.Clone(s.Past[max(0, len(s.Past)-maxOutages+1):]), Outage{From: s.seen, To: now})
		}
		s.Unreachable, s.Since = false, now
		s.Epoch++
	}
	s.seen, s.failing, s.failures, s.Refused = sent, time.Time{}, 0, false
	return s
}

// ObserveRefusedCredentials returns the state after a check in which the API server rejected the credentials of this
// process. A rejection counts like a missing answer.
func (s State) ObserveRefusedCredentials(sent, now time.Time) State {
	s = s.Observe(sent, now, false)
	s.Refused = true
	return s
}

// ExcludeOutages moves the start of a timeout forward, so that the timeout does not run during outages. The parameter
// began is the start of the timeout. The parameter counted is the end of the outages that began already includes.
// ExcludeOutages returns the new values of both. If counted does not change, began does not change either. Outages are
// extended to whole seconds, because the API stores times in whole seconds.
func ExcludeOutages(past []Outage, began, counted time.Time) (newBegan, newCounted time.Time) {
	for _, o := range past {
		from, to := o.From.Truncate(time.Second), o.To.Add(time.Second-time.Nanosecond).Truncate(time.Second)
		for _, t := range []time.Time{began, counted} {
			if t.After(from) {
				from = t
			}
		}
		if to.After(from) {
			began, counted = began.Add(to.Sub(from)), to
		}
	}
	return began, counted
}

const (
	// durableFactor is the number of timeouts after which a recorded start counts, even if this leader did not observe
	// the whole time.
	durableFactor = 3
	// termShare determines how long a process must have led before it relies on a recorded start: the timeout divided
	// by termShare. After an outage that the process did not observe, nodes need time to report again.
	termShare = 10
)

// TimeLeft returns how much of a timeout is left. It is negative if the timeout is over.
//
// The timeout runs from counted, which is never before this process became the leader, because the process does not
// know of earlier outages. If leaders change often, such a timeout would never end. Therefore TimeLeft also uses began,
// the start that the API records for all leaders, moved forward by the observed outages. The timeout is over if three
// timeouts have passed since began, and the process has led for a tenth of a timeout.
func TimeLeft(timeout time.Duration, began, counted, leading, now time.Time) time.Duration {
	left := timeout - now.Sub(counted)
	durable := durableFactor*timeout - now.Sub(began)
	settling := timeout/termShare - now.Sub(leading)
	return min(left, max(durable, settling))
}
