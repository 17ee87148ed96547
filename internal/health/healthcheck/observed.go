package healthcheck

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/internal/platform/reachability"
)

// Signal is a symptom or an excuse of a machine. It is another Signal if any of its fields changes.
type Signal struct {
	// UID is the UID of the Machine or Node. Type and Status are those of its condition.
	UID          types.UID
	Type, Status string
	// Began is when it began, by the clock of its writer.
	Began time.Time
}

// signalKey is a Signal as a map key. Equal times may have different locations, so a Signal itself cannot be compared.
type signalKey struct {
	uid          types.UID
	kind, status string
	began        int64
}

func (s Signal) key() signalKey { return signalKey{s.UID, s.Type, s.Status, s.Began.UnixNano()} }

// Observations are the times at which this process first observed signals, by its own clock.
type Observations struct {
	// before are the observations of the last pass, now those of this pass.
	before, now map[signalKey]time.Time
}

// since returns when a signal was first observed. For a new signal that is now. A stored time after now means that the
// clock of the host was set back. The signal then begins now.
func (o *Observations) since(s Signal, now time.Time) time.Time {
	if at, known := o.now[s.key()]; known {
		return at
	}
	at, known := o.before[s.key()]
	if !known || at.After(now) {
		at = now
	}
	o.now[s.key()] = at
	return at
}

// newPass returns the Observations for the next pass. It forgets signals that this pass did not observe.
func (o *Observations) newPass() *Observations {
	if o == nil {
		return &Observations{now: map[signalKey]time.Time{}}
	}
	return &Observations{before: o.now, now: make(map[signalKey]time.Time, len(o.now))}
}

// clockDifference is how much the clock of another host may differ from the clock of this process.
const clockDifference = 15 * time.Minute

// left returns how much of a timeout remains for a signal. It is zero or less if the timeout has passed. Without
// Observations, the timeout counts from Began, or from now if Began is in the future.
func (c Clock) left(timeout time.Duration, signal Signal, now time.Time) time.Duration {
	observed := signal.Began
	if c.Observed != nil {
		observed = c.Observed.since(signal, now)
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
