package reachability

import (
	"slices"
	"time"
)

const (
	// failuresUntilUnreachable is how many consecutive checks must fail before a cluster counts as unreachable. A
	// single request may be lost.
	failuresUntilUnreachable = 2
	// maxOutages is the maximum number of past outages that are stored. A small number is sufficient, because
	// controllers process an outage soon after it has ended.
	maxOutages = 32
)

// Outage is a period in which an API server did not answer. An outage begins with the last answer before the
// failure. An outage ends when the server has answered again and the caches of this process have caught up.
type Outage struct{ From, To time.Time }

// State contains what this process knows about an API server.
type State struct {
	// Unreachable means that the API server counts as unreachable: it failed two checks in a row and has not answered
	// since, or it has never answered.
	Unreachable bool
	// Since is when Unreachable last changed. It is the start of the first failed check while the API server is
	// unreachable, and the end of the first successful check afterwards.
	Since time.Time
	// Refused means that an unreachable API server did answer, but rejected the credentials of this process. It remains
	// set while the API server counts as unreachable, because several servers at one address may fail in different ways.
	Refused bool
	// Epoch counts how often Unreachable has changed. If a result was computed in one epoch, it may be wrong in the next
	// epoch.
	Epoch uint64
	// Past contains the outages that have ended, the oldest first. Only the last maxOutages are kept.
	Past []Outage

	seen     time.Time // time of the last answer, or of the first check if there was no answer yet
	failing  time.Time // start of the first of the latest failed checks in a row
	failures int       // failed checks in a row
}

// Unknown returns the state of an API server before its first check. It counts as unreachable.
func Unknown(now time.Time) State { return State{Unreachable: true, Since: now, seen: now} }

// Known reports whether the API server was checked at least once.
func (s State) Known() bool { return !s.Unreachable || s.failures > 0 }

// Failing reports whether the last check failed.
func (s State) Failing() bool { return s.failures > 0 }

// Observe returns the state after a check. The check began at the time sent and ended at the time now. An outage begins
// with the last successful check before it, because the API server may have failed at any time after that check.
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

// ObserveRefusedCredentials returns the state after a check in which the API server rejected the credentials of
// this process. For this process, a rejection has the same effects as no answer.
func (s State) ObserveRefusedCredentials(sent, now time.Time) State {
	s = s.Observe(sent, now, false)
	s.Refused = true
	return s
}

// ExcludeOutages moves the start of a timeout so that the timeout does not advance during outages. The parameter began
// is this start. ExcludeOutages moves this start forward by the total duration of all outages since then. The parameter
// counted is the end of the outages that are already included in began, and ExcludeOutages returns its new value. If
// counted does not change, began does not change either. Outages are extended to whole seconds, because the API stores
// times in whole seconds.
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
	// durableFactor is a number of timeouts. If this number of timeouts has passed since the recorded start, the
	// timeout is over, even if this leader did not observe the whole time.
	durableFactor = 3
	// termShare determines how long a process must have led before it relies on a recorded start. This time is the timeout
	// divided by termShare. It is needed because nodes need time to report again after an outage that the process did not
	// observe.
	termShare = 10
)

// TimeLeft returns how much of a timeout is left. It is negative if the timeout is over.
//
// The parameter counted is the time from which a timeout runs. It is never before the process became the leader,
// because the process does not know of earlier outages. However, if every leader ends before a whole timeout has
// passed, a timeout would never end. Therefore, TimeLeft also uses the parameter began, the recorded start of the
// timeout. It is stored in the API, so every leader can read it. It has been moved forward by the outages that this
// process observed. If three timeouts have passed since this start, and the process has led for a tenth of a
// timeout, the timeout is over.
func TimeLeft(timeout time.Duration, began, counted, leading, now time.Time) time.Duration {
	left := timeout - now.Sub(counted)
	durable := durableFactor*timeout - now.Sub(began)
	settling := timeout/termShare - now.Sub(leading)
	return min(left, max(durable, settling))
}
