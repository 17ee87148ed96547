package machineset

import (
	"maps"
	"slices"
)

// Fork returns a Reconciler that works with other options and remembers what r remembers at this moment. From then on
// neither knows what the other does. It is for simulations, and must not be called during a pass.
func (r *Reconciler) Fork(o Options) *Reconciler {
	f := New(o)
	m := r.shared
	r.echo.CopyTo(f.echo)
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, known := range m.sets {
		copied := *known
		copied.updated, copied.recoveries = maps.Clone(known.updated), maps.Clone(known.recoveries)
		copied.lostReplacements = slices.Clone(known.lostReplacements)
		f.shared.sets[key] = &copied
	}
	for set, in := range m.replacements {
		f.shared.replacements[set] = slices.Clone(in)
	}
	f.shared.floor, f.shared.doubts = m.floor, m.doubts
	f.shared.sizes = maps.Clone(m.sizes)
	return f
}
