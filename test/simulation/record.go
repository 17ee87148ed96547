package simulation

import (
	"fmt"
	"slices"
)

// recording is a run of a scenario, undisturbed or disturbed by a plan, from which others part at an effect.
type recording struct {
	scenario *Prepared
	seed     uint64
	plan     Plan
	// effects are those at which something can go wrong, after what the plan has go wrong already.
	effects []Effect
	// points are copies of the run on its way, in order.
	points []point
	// cached are the kinds that each process caches.
	cached map[string][]string
	result Result
	// end is the world in the end of an undisturbed run.
	end *World
}

// point is a copy of a world before an effect.
type point struct {
	effect int
	world  *World
}

// pointEvery is how many effects lie between two copies.
const pointEvery = 6

// listing is a plan that notes what else could be disturbed.
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

// record runs an undisturbed run of a scenario.
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

// run records the run of a world.
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
			return // It is when settled, or too early.
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

// before returns a copy of the run as it was before an effect, or some time before that.
func (r *recording) before(effect int) (*World, error) {
	i := len(r.points)
	for i > 0 && r.points[i-1].effect > effect {
		i--
	}
	if i == 0 {
		return nil, fmt.Errorf("effect %d is not one that comes after plan %q", effect, r.plan)
	}
	return r.points[i-1].world.snapshot()
}

// faults returns what can go wrong beyond the plan, effect by effect.
func (r *recording) faults() (out []At) {
	for _, e := range r.effects {
		for _, f := range everyFaultOf(e, r.cached[e.Process]) {
			out = append(out, At{e.N, f})
		}
	}
	return out
}

// with returns the run with one more thing that goes wrong. If record is true, more can be added to that.
func (r *recording) with(at At, record bool) *recording {
	next := &recording{scenario: r.scenario, seed: r.seed, plan: append(slices.Clip(r.plan), at), cached: r.cached}
	w, err := r.before(at.Effect)
	switch {
	case err != nil:
		next.result = Result{Err: err}
	case record:
		// What comes in the same step as the fault begins from before it.
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
