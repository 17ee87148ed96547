package reachability

import (
	"slices"
	"time"
)

const (
	// failuresUntilUnreachable is how many checks in a row must fail until a cluster counts as unreachable. A single
	// request may be lost.
	failuresUntilUnreachable = 2
	// maxOutages is how many past outages are kept. Users of an outage read it soon after it has ended.
	maxOutages = 32
)

// Outage is a time during which an API server did not answer: from its last answer until it answered again and this
// process had caught up with it.
type Outage struct{ From, To time.Time }

// State is what is known about an API server.
type State struct {
	// Unreachable means that the API server counts as unreachable: it failed two checks in a row and has not answered
	// since, or it has never answered.
	Unreachable bool
	// Since is when Unreachable last changed. An outage begins with the start of the first failed check. It ends with the
	// end of the first successful check.
	Since time.Time
	// Refused means that an unreachable API server did answer, but rejected the credentials of this process. It remains
	// set while the API server counts as unreachable, because several servers at one address may fail in different ways.
	Refused bool
	// Epoch counts how often Unreachable has changed. A result that was computed in one epoch may be wrong in the next.
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

// Observe returns the state after a check that began at sent and ended at now. An outage counts from the last
// successful check before it, because it may have begun at any time after that.
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

// ObserveRefusedCredentials is Observe for a check that was rejected because of this process's credentials. For this
// process, that is the same as no answer.
func (s State) ObserveRefusedCredentials(sent, now time.Time) State {
	s = s.Observe(sent, now, false)
	s.Refused = true
	return s
}

// ExcludeOutages moves the start of a clock so that the clock does not advance during outages. began is the start of
// something that has a time limit. It is moved forward by the part of the outages that falls into the time since then.
// counted is the end of the outages that began already includes; it is returned with its new value. began differs only
// if counted does. Outages are extended to whole seconds, because the API stores times in whole seconds.
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
	// durableFactor is how many timeouts must have passed since a recorded start, so that the timeout is over although
	// this leader did not observe all of that time.
	durableFactor = 3
	// termShare determines how long a process must have led before it relies on a recorded start: for this part of a
	// timeout. After an outage that the process did not observe, nodes need time to report again.
	termShare = 10
)

// TimeLeft returns how much of a timeout is left. It is negative if the timeout is over.
//
// The clock of a timeout runs from counted, but not from before the process began to lead, because the process does not
// know of earlier outages. So if no process leads for a whole timeout, no timeout would ever end. For that reason the
// time since began counts as well. began is recorded in the API, so every leader can read it. The outages that this
// process observed are excluded from the time since began. When three timeouts have passed since began, the timeout is
// over, once the process has led for a tenth of a timeout.
func TimeLeft(timeout time.Duration, began, counted, leading, now time.Time) time.Duration {
	left := timeout - now.Sub(counted)
	durable := durableFactor*timeout - now.Sub(began)
	settling := timeout/termShare - now.Sub(leading)
	return min(left, max(durable, settling))
}
