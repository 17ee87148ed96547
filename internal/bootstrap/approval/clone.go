package approval

import "maps"

// Clone returns a Reconciler that works with other options and remembers what r remembers at this moment. From then on
// neither knows what the other does. It is for simulations, and must not be called during a pass.
func (r *Reconciler) Clone(o Options) *Reconciler {
	f := New(o)
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	// What a reading points to is never changed.
	f.state.readings, f.state.reported, f.state.swept = maps.Clone(r.state.readings), maps.Clone(r.state.reported), r.state.swept
	return f
}
