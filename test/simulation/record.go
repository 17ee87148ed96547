package simulation

import (
	"fmt"
	"slices"
)

// recording is the record of one run of a scenario, with or without a plan. Other runs can start from copies of its
// world.
type recording struct {
	scenario *Prepared
	seed     uint64
	plan     Plan
	effects  []Effect
	points   []point
	cached   map[string][]string
	result   Result
	end      *World
}

type point struct {
	effect int
	world  *World
}

// pointEvery is the number of effects between two copies.
const pointEvery = 6

type listing struct {
	plan    Plan
	effects []Effect
}

// Next implements Faults.
func (l *listing) Next(w *World, e Effect) Fault {
	if n := len(l.plan); n == 0 || e.N > l.plan[n-1].Effect {
		e.Breakable = len(w.breakable()) > 0
		l.effects = append(l.effects, e)
	}
	return l.plan.Next(w, e)
}

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

func (r *recording) run(w *World) {
	seen := &listing{plan: r.plan}
	w.faults = seen
	begin := 0
	if n := len(r.plan); n > 0 {
		begin = r.plan[n-1].Effect + 1
	}
	next := begin
	w.betweenSteps = func() {
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

func (r *recording) faults() (out []FaultAt) {
	for _, e := range r.effects {
		for _, f := range everyFaultOf(e, r.cached[e.Process]) {
			out = append(out, FaultAt{e.N, f})
		}
	}
	return out
}

func (r *recording) withFault(at FaultAt, record bool) *recording {
	next := &recording{scenario: r.scenario, seed: r.seed, plan: append(slices.Clip(r.plan), at), cached: r.cached}
	w, err := r.copyBefore(at.Effect)
	switch {
	case err != nil:
		next.result = Result{Err: err}
	case record:
		// The copy contains the world after the step with the fault. A second fault in the same step must start from an
		// earlier copy.
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
