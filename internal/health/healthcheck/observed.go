package healthcheck

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/internal/platform/reachability"
)

// Signal is a symptom of a machine, or a state that excuses a symptom. A change of any field makes it a different
// Signal.
type Signal struct {
	// UID identifies the Machine or Node. Type and Status are the type and the status of the object's condition.
	UID          types.UID
	Type, Status string
	// StartTime holds the start time of the signal, by the clock of the host that wrote the condition.
	StartTime time.Time
}

// signalKey is a comparable form of a Signal. Signals are not comparable with ==, because values of time.Time may
// differ in their location although the time is the same.
type signalKey struct {
	uid          types.UID
	kind, status string
	began        int64
}

func (s Signal) key() signalKey { return signalKey{s.UID, s.Type, s.Status, s.StartTime.UnixNano()} }

// Observations maps each signal to the time at which this process first observed it, by the clock of this process.
type Observations struct {
	previous, current map[signalKey]time.Time
}

// firstObserved returns the time at which a signal was first observed, or now for a new signal. If the stored time is
// in the future, the clock was set back, and the signal counts as new.
func (o *Observations) firstObserved(s Signal, now time.Time) time.Time {
	if at, known := o.current[s.key()]; known {
		return at
	}
	at, known := o.previous[s.key()]
	if !known || at.After(now) {
		at = now
	}
	o.current[s.key()] = at
	return at
}

// newPass returns the Observations for the next pass, without signals that this pass did not observe.
func (o *Observations) newPass() *Observations {
	if o == nil {
		return &Observations{current: map[signalKey]time.Time{}}
	}
	return &Observations{previous: o.current, current: make(map[signalKey]time.Time, len(o.current))}
}

// clockDifference is the maximum difference between the clocks of two hosts.
const clockDifference = 15 * time.Minute

// timeLeft returns the rest of a timeout, which may be negative. If c.Observations is nil, the timeout counts from
// signal.StartTime, or from now if that time is in the future.
func (c Clock) timeLeft(timeout time.Duration, signal Signal, now time.Time) time.Duration {
	observed := signal.StartTime
	if c.Observations != nil {
		observed = c.Observations.firstObserved(signal, now)
	}
	counted := latest(observed, c.EarliestStart)
	if counted.After(now) {
		counted = now
	}
	return reachability.TimeLeft(timeout, latest(signal.StartTime.Add(clockDifference), c.LastInterruption), counted,
		c.LeaderSince, now)
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
