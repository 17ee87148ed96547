package approval

import "maps"

// Fork returns a Reconciler that works with other options and remembers what r remembers at this moment. From then on
// neither knows what the other does. It is for simulations, and must not be called during a pass.
func (r *Reconciler) Fork(o Options) *Reconciler {
	f := New(o)
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	// What a reading points to is never changed.
	f.memory.readings, f.memory.told, f.memory.swept = maps.Clone(r.memory.readings), maps.Clone(r.memory.told), r.memory.swept
	return f
}
