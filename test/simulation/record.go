package simulation

import (
	"fmt"
	"slices"
)

// recording is a scenario's recorded run, either with a plan or without one. Other runs can start from copies of
// its world.
type recording struct {
	scenario *Prepared
	seed     uint64
	plan     Plan
	// effects contains the effects after the last fault of the plan. Each of them can have another fault.
	effects []Effect
	// points contains copies of the world during the run, in the order in which they were made.
	points []point
	// cached contains the kinds that each process caches.
	cached map[string][]string
	result Result
	// end is the world at the end of an undisturbed run.
	end *World
}

// point is a copy of the world directly before an effect.
type point struct {
	effect int
	world  *World
}

// pointEvery is the number of effects between two of these copies.
const pointEvery = 6

// listing carries out a plan, and also records all effects after the last fault of the plan.
type listing struct {
	plan    Plan
	effects []Effect
}

// Of implements Faults.
func (l *listing) Of(w *World, e Effect) Fault {
	if n := len(l.plan); n == 0 || e.N > l.plan[n-1].Effect {
		l.effects = append(l.effects, e)
	}
	return l.plan.Of(w, e)
}

// record runs a scenario without faults and returns the recording.
func (p *Prepared) record(seed uint64) *recording {
	r := &recording{scenario: p, seed: seed, cached: map[string][]string{}}
	w, err := p.begin(seed, true)
	if err != nil {
		r.result.Err = err
		return r
	}
	for _, process := range w.processes {
		for _, v := range process.views() {
			if kind := v.gvk.Kind; !slices.Contains(r.cached[process.name], kind) {
				r.cached[process.name] = append(r.cached[process.name], kind)
			}
		}
	}
	r.run(w)
	r.end = w
	return r
}

// run runs a world until its end and records the run.
func (r *recording) run(w *World) {
	seen := &listing{plan: r.plan}
	w.faults = seen
	begin := 0
	if n := len(r.plan); n > 0 {
		begin = r.plan[n-1].Effect + 1
	}
	next := begin
	w.between = func() {
		if w.faults == nil || w.effects < next {
			return // The world is settled, or it is too early for another copy.
		}
		copied, err := w.snapshot()
		if err != nil {
			w.oracle.broken(fmt.Errorf("copy the world: %w", err))
			return
		}
		r.points = append(r.points, point{w.effects, copied})
		next = w.effects + pointEvery
	}
	r.result = w.finish()
	r.effects = seen.effects
}

// copyBefore returns a copy of the world shortly before an effect.
func (r *recording) copyBefore(effect int) (*World, error) {
	i := len(r.points)
	for i > 0 && r.points[i-1].effect > effect {
		i--
	}
	if i == 0 {
		return nil, fmt.Errorf("effect %d does not come after plan %q", effect, r.plan)
	}
	return r.points[i-1].world.snapshot()
}

// faults returns the possible faults at each effect after the plan.
func (r *recording) faults() (out []At) {
	for _, e := range r.effects {
		for _, f := range everyFaultOf(e, r.cached[e.Process]) {
			out = append(out, At{e.N, f})
		}
	}
	return out
}

// withFault runs the scenario with one more fault in the plan. If record is true, the result is recorded, so that
// further faults can be added.
func (r *recording) withFault(at At, record bool) *recording {
	next := &recording{scenario: r.scenario, seed: r.seed, plan: append(slices.Clip(r.plan), at), cached: r.cached}
	w, err := r.copyBefore(at.Effect)
	switch {
	case err != nil:
		next.result = Result{Err: err}
	case record:
		// The effects in the same step as the fault need a copy of the world from before the fault.
		if w, err := w.snapshot(); err == nil {
			next.points = []point{{at.Effect + 1, w}}
		}
		next.run(w)
	default:
		w.faults = next.plan
		next.result = w.finish()
	}
	return next
}
