package machineclass

import "maps"

// Fork returns a Reconciler that works with other options and remembers what r remembers at this moment. From then on
// neither knows what the other does. It is for simulations, and must not be called during a pass.
func (r *Reconciler) Fork(o Options) *Reconciler {
	f := New(o)
	r.echo.CopyTo(f.echo)
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	f.memory.classes = maps.Clone(r.memory.classes)
	return f
}
