package reachability

import (
	"slices"
	"time"
)

const (
	// failuresUntilUnreachable is how many consecutive checks must fail, because a single request may be lost.
	failuresUntilUnreachable = 2
	// maxOutages is the maximum number of stored outages. maxOutages can be low, because controllers extend their
	// timeouts soon after an outage has ended.
	maxOutages = 32
)

// Outage is a period in which an API server did not answer. The start of the period is the time of the last answer
// before the failure. The period ends when the server answers again and the caches of this process have caught up.
type Outage struct{ From, To time.Time }

// State contains what this process knows about an API server.
type State struct {
	// Unreachable means that the API server failed two checks in a row and has not answered since, or that it has never
	// answered.
	Unreachable bool
	// ChangeTime is the time at which Unreachable last changed: the start of the first failed check, or the end of
	// the first successful check.
	ChangeTime time.Time
	// CredentialsRefused is true if an unreachable API server rejected the credentials of this process. The field
	// stays set until the end of the outage, because several servers at one address may fail in different ways.
	CredentialsRefused bool
	// Epoch counts the changes of Unreachable. If Epoch has changed, a result that was computed before the change may
	// be outdated, such as the result of a drain.
	Epoch uint64
	// PastOutages contains the last maxOutages outages that have ended, the oldest first.
	PastOutages []Outage

	seen     time.Time // time of the last answer, or of the first check if there was no answer yet
	failing  time.Time // start of the first of the latest failed checks in a row
	failures int       // failed checks in a row
}

// NewState creates the initial State of an API server that was not checked yet. The server counts as unreachable.
func NewState(now time.Time) State { return State{Unreachable: true, ChangeTime: now, seen: now} }

// IsChecked reports whether the API server was checked at least once.
func (s State) IsChecked() bool { return !s.Unreachable || s.failures > 0 }

// Failing reports whether the API server failed the last check.
func (s State) Failing() bool { return s.failures > 0 }

// Observe returns the state after one more check. The parameter sent is the start of the check, now is its end, and ok
// is true if the API server answered. An outage begins with the last successful check, because the API server may have
// failed at any time after it.
func (s State) Observe(sent, now time.Time, ok bool) State {
	if !ok {
		if s.failures++; s.failures == 1 {
			s.failing = sent
		}
		if !s.Unreachable && s.failures >= failuresUntilUnreachable {
			s.Unreachable, s.ChangeTime = true, s.failing
			s.Epoch++
		}
		return s
	}
	if s.Unreachable {
		if s.IsChecked() {
			s.PastOutages = append(slices.Clone(s.PastOutages[max(0, len(s.PastOutages)-maxOutages+1):]),
				Outage{From: s.seen, To: now})
		}
		s.Unreachable, s.ChangeTime = false, now
		s.Epoch++
	}
	s.seen, s.failing, s.failures, s.CredentialsRefused = sent, time.Time{}, 0, false
	return s
}

// ObserveRefusedCredentials returns the state after a check in which the API server rejected the credentials of this
// process. A rejection counts like a missing answer.
func (s State) ObserveRefusedCredentials(sent, now time.Time) State {
	s = s.Observe(sent, now, false)
	s.CredentialsRefused = true
	return s
}

// ExcludeOutages moves the start of a timeout forward, so that the timeout does not run during outages. Earlier calls
// have already moved timeoutStart forward for all outages before excludedUntil. ExcludeOutages returns the new values
// of timeoutStart and excludedUntil, or both values unchanged if there was no further outage. Outages are extended to
// whole seconds, because the API stores times in whole seconds.
func ExcludeOutages(past []Outage, timeoutStart, excludedUntil time.Time) (newStart,
	newExcludedUntil time.Time) {
	for _, o := range past {
		from, to := o.From.Truncate(time.Second), o.To.Add(time.Second-time.Nanosecond).Truncate(time.Second)
		for _, t := range []time.Time{timeoutStart, excludedUntil} {
			if t.After(from) {
				from = t
			}
		}
		if to.After(from) {
			timeoutStart, excludedUntil = timeoutStart.Add(to.Sub(from)), to
		}
	}
	return timeoutStart, excludedUntil
}

const (
	// durableFactor is a multiple of the timeout. The timeout is over when this much time has passed since the recorded
	// start, even if this leader did not observe all of it.
	durableFactor = 3
	// termShare determines how long a process must have led before it relies on a recorded start: the timeout divided
	// by termShare. After an outage that the process did not observe, nodes need time to report again.
	termShare = 10
)

// TimeLeft returns how much of a timeout is left. The result is negative if the timeout is over.
//
// The timeout usually runs from observedStart. A leader does not know of outages before its term, so observedStart is
// not before the start of the term. If leaders change often, a timeout from observedStart would never end. Therefore
// TimeLeft also uses recordedStart. The API stores this time for all leaders, and the caller has moved it forward by
// the observed outages. The timeout is also over if three times its duration has passed since recordedStart, and this
// process has led for a tenth of its duration.
func TimeLeft(timeout time.Duration, recordedStart, observedStart, leading, now time.Time) time.Duration {
	left := timeout - now.Sub(observedStart)
	durable := durableFactor*timeout - now.Sub(recordedStart)
	settling := timeout/termShare - now.Sub(leading)
	return min(left, max(durable, settling))
}
