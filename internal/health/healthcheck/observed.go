package healthcheck

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/internal/platform/reachability"
)

// Signal is something that is wrong with a machine, or that excuses it. It begins anew whenever any of its fields
// changes.
type Signal struct {
	// UID of the Machine or of the Node that shows it, with the Type of a condition there and its Status.
	UID          types.UID
	Type, Status string
	// Began is when, by the clock of whoever wrote it down.
	Began time.Time
}

// key is a Signal that can be compared: equal times may differ in their location.
type key struct {
	uid          types.UID
	kind, status string
	began        int64
}

func (s Signal) key() key { return key{s.UID, s.Type, s.Status, s.Began.UnixNano()} }

// Observations are when this process observed signals for the first time, by its own clock.
type Observations struct {
	// before are those of earlier passes, now those of this one.
	before, now map[key]time.Time
}

// since returns when a signal was first observed, which is now for a new one. A time that is ahead of now is one from
// before the host's clock was set back: the signal begins now.
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

// newPass returns the Observations of the next pass. They have what this one saw, and no more.
func (o *Observations) newPass() *Observations {
	if o == nil {
		return &Observations{now: map[key]time.Time{}}
	}
	return &Observations{before: o.now, now: make(map[key]time.Time, len(o.now))}
}

// clockDifference is by how much the clock of whoever wrote a time down may differ from ours. Where all that is known
// of a signal is such a time, it counts only as far as that leaves no uncertainty.
const clockDifference = 15 * time.Minute

// left is how much of a timeout is left to a signal, zero or less if nothing is. Without Observations the signal
// counts from when it is said to have begun; if that is in the future, by whatever clock, it begins now.
func (c Clock) left(timeout time.Duration, signal Signal, now time.Time) time.Duration {
	observed := signal.Began
	if c.Observed != nil {
		observed = c.Observed.since(signal, now)
	}
	counted := latest(observed, c.Since)
	if counted.After(now) {
		counted = now
	}
	return reachability.TimeLeft(timeout, latest(signal.Began.Add(clockDifference), c.Certain), counted,
		c.LeaderSince, now)
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
