package overshoot

import "time"

// Step is an action on a fleet.
type Step string

// The steps. Keep does nothing.
const (
	Keep   Step = "keep"
	Freeze Step = "freeze"
	Thaw   Step = "thaw"
)

// History is what the Reconciler remembers about a fleet. The zero value stands for an unknown fleet.
type History struct {
	// wanted is the number of machines that the fleet should have, as found in the last check.
	wanted int
	// former is the number of machines that the fleet should have had before that. It is tolerated until formerUntil.
	former      int
	formerUntil time.Time
	// pauseUntil is the time at which the pause after the last step ends. No further step is taken before that time.
	pauseUntil time.Time
	known      bool
}

// Observation is the present state of a fleet.
type Observation struct {
	Now time.Time
	// Wanted is the number of wanted machines: replicas plus the surge of a deployment.
	Wanted int
	// Recorded is the number of machines in the status of the fleet's owners. If the History is empty, these machines
	// count as machines that were wanted before.
	Recorded int
	// Live is the number of machines that are neither being deleted nor preserved.
	Live int
	// Frozen means that the fleet is frozen because of an overshoot.
	Frozen bool
	// Unfreeze means that an administrator requests the end of the freeze.
	Unfreeze bool
}

// Decision is the result of Decide.
type Decision struct {
	Step Step
	// High is the tolerated number of machines.
	High int
	// Wait is the time until the next check if no event triggers one earlier. Zero means never.
	Wait time.Duration
}

// Learn returns the history, updated with the wanted number of machines from an observation. If fewer machines are
// wanted than before, the earlier number is tolerated for a period, so that the surplus can be deleted.
func (h History) Learn(s Observation, l Limits) History {
	was := h.tolerated(s.Now)
	if !h.known {
		was = max(was, s.Recorded)
	}
	switch {
	case s.Wanted >= was:
		h.formerUntil = time.Time{}
	case !h.known || s.Wanted < h.wanted:
		h.former, h.formerUntil = was, s.Now.Add(l.Period)
	}
	h.wanted, h.known = s.Wanted, true
	return h
}

// ForgetWanted returns the history without the number of machines that were wanted before.
func (h History) ForgetWanted() History {
	h.known = false
	return h
}

// tolerated returns the number of machines that are wanted, or were wanted until less than a period ago.
func (h History) tolerated(now time.Time) int {
	if now.Before(h.formerUntil) {
		return max(h.wanted, h.former)
	}
	return h.wanted
}

// AfterStep returns the history after a step was taken, or after it was found that the step was not needed.
func (h History) AfterStep(now time.Time, l Limits) History {
	h.pauseUntil = now.Add(l.Period)
	return h
}

// Pausing reports whether the last step was less than a period ago.
func (h History) Pausing(now time.Time) bool { return now.Before(h.pauseUntil) }

// Decide returns the next step for a fleet. h already includes the observation (see Learn).
func Decide(h History, s Observation, l Limits) Decision {
	d := Decision{Step: Keep, High: h.tolerated(s.Now) + l.Up}
	step := Keep
	switch recovered := s.Wanted + l.Up - l.Down; {
	case s.Unfreeze:
		d.Step = Thaw
		return d
	case !s.Frozen && s.Live > d.High:
		step = Freeze
	case s.Frozen && s.Live <= recovered:
		step = Thaw
	case !s.Frozen && s.Live > s.Wanted+l.Up:
		d.Wait = h.formerUntil.Sub(s.Now)
	}
	if step != Keep && h.Pausing(s.Now) {
		d.Wait = h.pauseUntil.Sub(s.Now)
		return d
	}
	d.Step = step
	return d
}
