package reachability

import (
	"slices"
	"time"
)

const (
	// failuresUntilUnreachable is how many looks in a row must fail until a cluster counts as unreachable: one request
	// may be lost.
	failuresUntilUnreachable = 2
	// maxOutages is how many outages are remembered. Whoever has to know of one learns of it when it ends.
	maxOutages = 32
)

// Outage is a time in which an API server did not answer: from when it was last seen to answer until it did again and
// this process had caught up with it.
type Outage struct{ From, To time.Time }

// State is what is known of an API server.
type State struct {
	// Unreachable says that it counts as unreachable: it failed two checks in a row and none succeeded since, or was
	// never seen.
	Unreachable bool
	// Since is since when that is so. An absence begins with the first check that failed, a presence with the end of the
	// first that succeeded.
	Since time.Time
	// Refused says of one that is unreachable that it did answer, with a rejection of this process's credentials. It
	// stays so for as long as the cluster is unreachable: of several servers at one address each may fail in another
	// way.
	Refused bool
	// Epoch counts how often Unreachable has changed. What was reckoned in one epoch may be wrong in the next.
	Epoch uint64
	// Past are the outages that are over, the oldest first; only the last few are kept.
	Past []Outage

	seen     time.Time // when it last answered or, before it ever did, when it was first looked for
	failing  time.Time // when the first of the looks that failed in a row was begun
	failures int       // in a row
}

// Unknown is the state of an API server before it is checked for the first time. It counts as unreachable.
func Unknown(now time.Time) State { return State{Unreachable: true, Since: now, seen: now} }

// Known reports whether there was any check it.
func (s State) Known() bool { return !s.Unreachable || s.failures > 0 }

// Failing reports whether the last check failed.
func (s State) Failing() bool { return s.failures > 0 }

// Observe returns the state after a check that was begun at sent and was over at now. An outage that is over is
// reckoned from the look before it, so that none of it is missed: it began at any time since then.
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

// ObserveRefusedCredentials is Observe of a check that was answered with a rejection of this process's credentials:
// it sees as little as one that nobody answered.
func (s State) ObserveRefusedCredentials(sent, now time.Time) State {
	s = s.Observe(sent, now, false)
	s.Refused = true
	return s
}

// ExcludeOutages returns how a clock that does not advance in outages is set: began, when something began that is
// given a certain time, is moved on by what of the outages fell into it. counted is until when outages are in began
// already; it is returned anew, and began differs only if it does. Outages are widened to whole seconds, in which the
// API keeps times.
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
	// durableFactor is how many times a timeout must have passed, by what is written down, until it does not matter any
	// more that the leader has not seen all of that time.
	durableFactor = 3
	// termShare is the part of a timeout for which a process must have led before it goes by what is written down: after
	// an outage that it does not know of, what was cut off needs a moment to be seen again.
	termShare = 10
)

// TimeLeft returns how much of a timeout is left, less than nothing when it is over. A clock that judges machines
// runs from counted: not from before the process began to lead, since it does not know of the outages before that. A
// leader that never lasts for a whole timeout would so judge nothing, ever. So the time since began counts as well,
// which every leader finds written down, and from which the outages are left out that this process has seen: after
// three timeouts by it the time is over, once the process has led for a tenth of one.
func TimeLeft(timeout time.Duration, began, counted, leading, now time.Time) time.Duration {
	left := timeout - now.Sub(counted)
	durable := durableFactor*timeout - now.Sub(began)
	settling := timeout/termShare - now.Sub(leading)
	return min(left, max(durable, settling))
}
