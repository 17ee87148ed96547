package machinedeployment

import (
	"maps"
	"slices"
)

// Fork returns a Reconciler that works with other options and remembers what r remembers at this moment. From then on
// neither knows what the other does. It is for simulations, and must not be called during a pass.
func (r *Reconciler) Fork(o Options) *Reconciler {
	f := New(o)
	m := r.memory
	r.echo.CopyTo(f.echo)
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, known := range m.deployments {
		copied := *known
		copied.failed = slices.Clone(known.failed)
		copied.told = maps.Clone(known.told)
		copied.failures.machines = maps.Clone(known.failures.machines)
		f.memory.deployments[key] = &copied
	}
	return f
}

// Fork returns a Marker that works with other options and remembers what k remembers at this moment. From then on neither
// knows what the other does. It is for simulations, and must not be called during a pass.
func (k *Marker) Fork(o MarkerOptions) *Marker {
	f := NewMarker(o)
	k.mu.Lock()
	defer k.mu.Unlock()
	f.showed = maps.Clone(k.showed)
	for key, known := range k.known {
		copied := *known
		copied.done = maps.Clone(known.done)
		f.known[key] = &copied
	}
	return f
}
