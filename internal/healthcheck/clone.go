package healthcheck

import (
	"maps"
	"slices"
)

// Clone returns a Reconciler that works with other options and remembers what r remembers at this moment. From then on
// neither knows what the other does. It is for simulations, and must not be called during a pass.
func (r *Reconciler) Clone(o Options) *Reconciler {
	f := New(o)
	was := &r.state.checkState
	f.state.checkState = checkState{
		machines: r.state.sizeOfFleet(), began: was.began,
		melting: maps.Clone(was.melting), recovered: maps.Clone(was.recovered),
		statusWritten: maps.Clone(was.statusWritten), restrictions: maps.Clone(was.restrictions),
		vacancies: maps.Clone(was.vacancies),
	}
	if was.seen != nil {
		f.state.seen = &Observations{before: maps.Clone(was.seen.before), now: maps.Clone(was.seen.now)}
	}
	for set, left := range f.state.vacancies {
		f.state.vacancies[set] = slices.Clone(left)
	}
	return f
}
