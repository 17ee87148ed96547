package overshoot

import "time"

// Step is what to do with a family.
type Step string

// The steps. Keep changes nothing.
const (
	Keep   Step = "keep"
	Freeze Step = "freeze"
	Thaw   Step = "thaw"
)

// History is what is remembered of a family. Its zero value remembers nothing.
type History struct {
	// wanted is how many machines there might be when it was checked last.
	wanted int
	// before is how many there might be until a while ago; it counts until the time beforeUntil.
	before      int
	beforeUntil time.Time
	// restUntil is until when no step is taken since there was one.
	restUntil time.Time
	known     bool
}

// Observation is what is seen of a family.
type Observation struct {
	Now time.Time
	// Wanted is how many machines there may be: replicas, and the surge of a deployment.
	Wanted int
	// Recorded is how many its owners' status says that there are. Where nothing is remembered, they count as wanted
	// before.
	Recorded int
	// Live is how many there are that nobody deletes and that are not preserved.
	Live int
	// Frozen reports whether it is frozen for an overshoot.
	Frozen bool
	// Unfreeze reports whether a person asks that there be no freeze for now.
	Unfreeze bool
}

// Decision is what follows from a observation.
type Decision struct {
	Step Step
	// High is how many machines are tolerated.
	High int
	// Wait is after what time to check again without an event; zero is never.
	Wait time.Duration
}

// Learn returns the history with what a observation says about how many machines are wanted. Whoever wants fewer than
// before has a period to delete the others: they are no overshoot.
func (h History) Learn(s Observation, l Limits) History {
	was := h.tolerated(s.Now)
	if !h.known {
		was = max(was, s.Recorded)
	}
	switch {
	case s.Wanted >= was:
		h.beforeUntil = time.Time{}
	case !h.known || s.Wanted < h.wanted:
		h.before, h.beforeUntil = was, s.Now.Add(l.Period)
	}
	h.wanted, h.known = s.Wanted, true
	return h
}

// ForgetWanted returns the history as one that does not know how many machines were wanted before.
func (h History) ForgetWanted() History {
	h.known = false
	return h
}

// tolerated is how many machines somebody wants, or wanted until just now.
func (h History) tolerated(now time.Time) int {
	if now.Before(h.beforeUntil) {
		return max(h.wanted, h.before)
	}
	return h.wanted
}

// Rested returns the history after a step was taken, or found to be unfounded.
func (h History) Rested(now time.Time, l Limits) History {
	h.restUntil = now.Add(l.Period)
	return h
}

// Resting reports whether there was a step just now.
func (h History) Resting(now time.Time) bool { return now.Before(h.restUntil) }

// Decide returns the next step for a family of which h was learned.
func Decide(h History, s Observation, l Limits) Decision {
	d := Decision{Step: Keep, High: h.tolerated(s.Now) + l.Up}
	step := Keep
	switch calm := s.Wanted + l.Up - l.Down; {
	case s.Unfreeze:
		d.Step = Thaw
		return d
	case !s.Frozen && s.Live > d.High:
		step = Freeze
	case s.Frozen && s.Live <= calm:
		step = Thaw
	case !s.Frozen && s.Live > s.Wanted+l.Up:
		d.Wait = h.beforeUntil.Sub(s.Now)
	}
	if step != Keep && h.Resting(s.Now) {
		d.Wait = h.restUntil.Sub(s.Now)
		return d
	}
	d.Step = step
	return d
}
