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

// History is what the Reconciler remembers about a fleet. The zero value is an unknown fleet.
type History struct {
	wanted int
	// former is the wanted number of machines before the last reduction. Until the time formerUntil, the fleet may
	// still have this number of machines.
	former      int
	formerUntil time.Time
	// pauseUntil is when the next step may be taken.
	pauseUntil time.Time
	known      bool
}

// Observation is the present state of a fleet.
type Observation struct {
	Now time.Time
	// Wanted is replicas plus the surge of a deployment.
	Wanted int
	// Recorded is the number of machines in the owners' status. After the first observation of a fleet, this number of
	// machines is tolerated for one Limits.Period, as if the fleet had been scaled down.
	Recorded int
	// Live counts machines that are neither being deleted nor preserved.
	Live int
	// Frozen means that this package has frozen the fleet. A freeze by a user does not count.
	Frozen bool
	// Unfreeze is true if an administrator has requested the end of the freeze with an annotation.
	Unfreeze bool
}

// Decision tells the caller whether to freeze or thaw a fleet, and when to check the fleet again.
type Decision struct {
	Step Step
	// High is the highest number of machines at which the fleet is not frozen.
	High int
	// Wait is the time after which the fleet must be checked again even if no event occurs. If Wait is zero, only an
	// event triggers a check.
	Wait time.Duration
}

// Learn adds the wanted size of an observation to the history. After a reduction, the former size is tolerated for a
// period, so that the surplus can be deleted.
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

// ForgetWanted returns a history for which the next observation counts as the first observation of the fleet.
func (h History) ForgetWanted() History {
	h.known = false
	return h
}

func (h History) tolerated(now time.Time) int {
	if now.Before(h.formerUntil) {
		return max(h.wanted, h.former)
	}
	return h.wanted
}

// AfterStep returns the history after a freeze, after a thaw, or after a live check without a freeze or thaw. The next
// step is possible after one Limits.Period.
func (h History) AfterStep(now time.Time, l Limits) History {
	h.pauseUntil = now.Add(l.Period)
	return h
}

// Pausing is true if the last step was less than one Limits.Period ago.
func (h History) Pausing(now time.Time) bool { return now.Before(h.pauseUntil) }

// Decide returns the next step for a fleet. The caller must first add the observation to the history with Learn.
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
