package machine

import "maps"

// Clone returns a Reconciler that works with other options and has a copy of r's state at this moment. From then on
// neither knows what the other does. It is for simulations, and must not be called during a pass.
func (r *Reconciler) Clone(o Options) *Reconciler {
	f := New(o)
	r.states.mu.Lock()
	defer r.states.mu.Unlock()
	// What a machineState points to is never changed.
	r.ownWrites.CopyTo(f.ownWrites)
	f.states.machines, f.states.began, f.states.created = maps.Clone(r.states.machines), r.states.began, maps.Clone(r.states.created)
	r.term.mu.Lock()
	defer r.term.mu.Unlock()
	f.term.minResourceVersion, f.term.inherited, f.term.protectedClasses = r.term.minResourceVersion, r.term.inherited, maps.Clone(r.term.protectedClasses)
	return f
}
