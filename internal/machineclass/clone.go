package machineclass

import "maps"

// Clone returns a Reconciler that works with other options and remembers what r remembers at this moment. From then on
// neither knows what the other does. It is for simulations, and must not be called during a pass.
func (r *Reconciler) Clone(o Options) *Reconciler {
	f := New(o)
	r.echo.CopyTo(f.echo)
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	f.state.classes = maps.Clone(r.state.classes)
	return f
}
