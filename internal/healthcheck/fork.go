package healthcheck

import (
	"maps"
	"slices"
)

// Fork returns a Reconciler that works with other options and remembers what r remembers at this moment. From then on
// neither knows what the other does. It is for simulations, and must not be called during a pass.
func (r *Reconciler) Fork(o Options) *Reconciler {
	f := New(o)
	was := &r.memory.recollection
	f.memory.recollection = recollection{
		machines: r.memory.sizeOfFleet(), began: was.began,
		melting: maps.Clone(was.melting), recovered: maps.Clone(was.recovered),
		statusWritten: maps.Clone(was.statusWritten), refusals: maps.Clone(was.refusals), vacancies: maps.Clone(was.vacancies),
	}
	if was.seen != nil {
		f.memory.seen = &Observations{before: maps.Clone(was.seen.before), now: maps.Clone(was.seen.now)}
	}
	for set, left := range f.memory.vacancies {
		f.memory.vacancies[set] = slices.Clone(left)
	}
	return f
}
