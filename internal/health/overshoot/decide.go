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
	// formerWanted is the wanted number of machines before the last reduction. Until the time formerUntil, the fleet
	// may still have this number of machines.
	formerWanted int
	formerUntil  time.Time
	// pauseUntil is when the next step may be taken.
	pauseUntil time.Time
	known      bool
}

// Observation is the present state of a fleet.
type Observation struct {
	Now time.Time
	// WantedMachines is replicas plus the surge of a deployment.
	WantedMachines int
	// RecordedMachines is the number of machines in the owners' status. After the first observation of a fleet, this
	// number of machines is tolerated for one Limits.Period, as if the fleet had been scaled down.
	RecordedMachines int
	// LiveMachines counts machines that are neither being deleted nor preserved.
	LiveMachines int
	// IsFrozen is true if this package has frozen the fleet. A freeze by a user does not count.
	IsFrozen bool
	// Unfreeze is true if an administrator has requested the end of the freeze with an annotation.
	Unfreeze bool
}

// Decision tells the caller whether to freeze or thaw a fleet, and when to check the fleet again.
type Decision struct {
	Step Step
	// MaxMachines is the highest number of machines at which the fleet is not frozen.
	MaxMachines int
	// RequeueAfter is the time after which the fleet must be checked again even if no event occurs. If RequeueAfter
	// is zero, only an event triggers a check.
	RequeueAfter time.Duration
}

// Learn adds the wanted size of an observation to the history. After a reduction, the former size is tolerated for a
// period, so that the surplus can be deleted.
func (h History) Learn(s Observation, l Limits) History {
	was := h.tolerated(s.Now)
	if !h.known {
		was = max(was, s.RecordedMachines)
	}
	switch {
	case s.WantedMachines >= was:
		h.formerUntil = time.Time{}
	case !h.known || s.WantedMachines < h.wanted:
		h.formerWanted, h.formerUntil = was, s.Now.Add(l.Period)
	}
	h.wanted, h.known = s.WantedMachines, true
	return h
}

// ForgetWanted returns a history for which the next observation counts as the first observation of the fleet.
func (h History) ForgetWanted() History {
	h.known = false
	return h
}

func (h History) tolerated(now time.Time) int {
	if now.Before(h.formerUntil) {
		return max(h.wanted, h.formerWanted)
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
	d := Decision{Step: Keep, MaxMachines: h.tolerated(s.Now) + l.Tolerance}
	step := Keep
	switch recovered := s.WantedMachines + l.Tolerance - l.Hysteresis; {
	case s.Unfreeze:
		d.Step = Thaw
		return d
	case !s.IsFrozen && s.LiveMachines > d.MaxMachines:
		step = Freeze
	case s.IsFrozen && s.LiveMachines <= recovered:
		step = Thaw
	case !s.IsFrozen && s.LiveMachines > s.WantedMachines+l.Tolerance:
		d.RequeueAfter = h.formerUntil.Sub(s.Now)
	}
	if step != Keep && h.Pausing(s.Now) {
		d.RequeueAfter = h.pauseUntil.Sub(s.Now)
		return d
	}
	d.Step = step
	return d
}
