package healthcheck

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/internal/platform/reachability"
)

// Signal is a symptom of a machine, or a fact that excuses a symptom. If any of its fields changes, it is a different
// Signal.
type Signal struct {
	// UID is the UID of the Machine or Node. Type and Status are the type and the status of its condition.
	UID          types.UID
	Type, Status string
	// Began is the time at which the signal began, by the clock of the host that wrote the condition.
	Began time.Time
}

// signalKey represents a Signal in the keys of maps. Equal times may have different locations, so a Signal itself
// cannot be compared.
type signalKey struct {
	uid          types.UID
	kind, status string
	began        int64
}

func (s Signal) key() signalKey { return signalKey{s.UID, s.Type, s.Status, s.Began.UnixNano()} }

// Observations are the times at which this process first observed signals, by its own clock.
type Observations struct {
	// previous contains the observations of the previous pass. current contains the observations of the current pass.
	previous, current map[signalKey]time.Time
}

// firstObserved returns the time at which a signal was first observed. For a new signal, it returns now. A stored time
// in the future means that the clock of the host was set back. The signal then begins now.
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

// newPass returns the Observations for the next pass. It forgets signals that this pass did not observe.
func (o *Observations) newPass() *Observations {
	if o == nil {
		return &Observations{current: map[signalKey]time.Time{}}
	}
	return &Observations{previous: o.current, current: make(map[signalKey]time.Time, len(o.current))}
}

// clockDifference is how much the clock of another host may differ from the clock of this process.
const clockDifference = 15 * time.Minute

// timeLeft returns how much of a timeout remains for a signal. It is zero or less if the timeout has passed. Without
// Observations, the timeout counts from Began, or from now if Began is in the future.
func (c Clock) timeLeft(timeout time.Duration, signal Signal, now time.Time) time.Duration {
	observed := signal.Began
	if c.Observed != nil {
		observed = c.Observed.firstObserved(signal, now)
	}
	counted := latest(observed, c.Since)
	if counted.After(now) {
		counted = now
	}
	return reachability.TimeLeft(timeout, latest(signal.Began.Add(clockDifference), c.Earliest), counted,
		c.LeaderSince, now)
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
