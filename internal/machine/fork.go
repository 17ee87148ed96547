package machine

import "maps"

// Fork returns a Reconciler that works with other options and remembers what r remembers at this moment. From then on
// neither knows what the other does. It is for simulations, and must not be called during a pass.
func (r *Reconciler) Fork(o Options) *Reconciler {
	f := New(o)
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	// What a recollection points to is never changed.
	r.echo.CopyTo(f.echo)
	f.memory.machines, f.memory.began, f.memory.created = maps.Clone(r.memory.machines), r.memory.began, maps.Clone(r.memory.created)
	r.reign.mu.Lock()
	defer r.reign.mu.Unlock()
	f.reign.floor, f.reign.inherited, f.reign.held = r.reign.floor, r.reign.inherited, maps.Clone(r.reign.held)
	return f
}
