package reachability

import (
	"context"
	"slices"
	"time"
)

// What follows is for simulations, which have one thread and a clock of their own: instead of Run, they call Lead and
// the looks themselves.

// Lead makes the Watch count from now on as one whose process leads.
func (w *Watch) Lead() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leading = w.options.Clock.Now()
}

// Probes returns one function for each cluster, the control cluster's first. It looks once and returns when to check
// again.
func (w *Watch) Probes(ctx context.Context) []func() time.Duration {
	var probes []func() time.Duration
	for _, c := range w.clusters() {
		probes = append(probes, func() time.Duration { return w.probe(ctx, c) })
	}
	return probes
}

// Clone returns a Watch that works with other options, of the same clusters, and remembers what w remembers at this
// moment. From then on neither knows what the other does.
func (w *Watch) Clone(o Options) *Watch {
	f := New(o)
	w.mu.Lock()
	defer w.mu.Unlock()
	f.leading = w.leading
	for i, c := range w.clusters() {
		into := f.clusters()[i]
		into.state = c.state
		into.state.Past = slices.Clone(c.state.Past)
	}
	return f
}
