package drain

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// state is all that a Controller knows and the API does not. Losing it costs nothing but a few calls.
type state struct {
	drainStates drainStates
	rejections  rejections
	attachments attachments
	daemonSets  daemonSets
	calls       *calls
}

func newState(o Options) *state {
	return &state{
		attachments: attachments{target: o.Target, clock: o.Clock},
		daemonSets:  daemonSets{target: o.Target, clock: o.Clock},
		calls:       newCalls(o.Evictions.slots),
	}
}

// Clone returns a controller that knows what c knows at this moment and works with other options; from then on
// neither sees what the other does. Those who wait for a place for their evictions wait at a copy of the limiter as
// well, unless the options bring one. It must not be called while a pass is under way.
func (c *Controller) Clone(o Options) *Controller {
	waitsAtCopy := o.Evictions == nil
	f := New(o)
	f.state = c.state.clone(f.options)
	f.work.Inherit(&c.work)
	f.triggers.Inherit(&c.triggers)
	if waitsAtCopy {
		f.options.Evictions = c.options.Evictions.clone(f.work.Enqueue)
	}
	return f
}

// clone copies the state for a controller with other options.
func (s *state) clone(o Options) *state {
	into := newState(o)
	s.drainStates.copyTo(&into.drainStates)
	s.rejections.copyTo(&into.rejections)
	s.attachments.copyTo(&into.attachments)
	s.daemonSets.copyTo(&into.daemonSets)
	s.calls.copyTo(into.calls)
	return into
}

func (m *drainStates) copyTo(into *drainStates) {
	m.mu.Lock()
	defer m.mu.Unlock()
	into.machines = mapped(m.machines, (*record).clone)
}

func (r *record) clone() *record {
	return &record{
		uid:            r.uid,
		drain:          clonePointer(r.drain),
		drainOutcome:   r.drainOutcome.clone(),
		drainPass:      r.drainPass.clone(),
		volumes:        r.volumes.clone(),
		volumesOutcome: r.volumesOutcome.clone(),
		volumesPass:    r.volumesPass,
		triggered:      maps.Clone(r.triggered),
	}
}

func (p drainPass) clone() drainPass {
	p.tries = mapped(p.tries, func(t Try) Try {
		t.Budgets = slices.Clone(t.Budgets)
		return t
	})
	return p
}

func (r *VolumesRequest) clone() *VolumesRequest {
	r = clonePointer(r)
	if r != nil {
		r.Reported = slices.Clone(r.Reported)
	}
	return r
}

func (o Outcome) clone() Outcome {
	o.Attached = slices.Clone(o.Attached)
	o.Blocked = slices.Clone(o.Blocked)
	for i := range o.Blocked {
		o.Blocked[i].Budgets = slices.Clone(o.Blocked[i].Budgets)
	}
	return o
}

func (r *rejections) copyTo(into *rejections) {
	r.mu.Lock()
	defer r.mu.Unlock()
	into.byBudget = mapped(r.byBudget, maps.Clone[map[types.UID]refused])
	into.byMachine = mapped(r.byMachine, maps.Clone[map[types.UID]types.NamespacedName])
}

func (a *attachments) copyTo(into *attachments) {
	a.mu.Lock()
	defer a.mu.Unlock()
	into.byNode = mapped(a.byNode, slices.Clone[[]Attachment])
	into.taken, into.next, into.many = a.taken, a.next, a.many
}

func (d *daemonSets) copyTo(into *daemonSets) {
	d.mu.Lock()
	defer d.mu.Unlock()
	into.found = maps.Clone(d.found)
}

// clone copies the queue; those in it are called by another function.
func (l *Limiter) clone(call func(types.NamespacedName)) *Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	into := &Limiter{slots: l.slots, free: l.free, queue: slices.Clone(l.queue)}
	for i := range into.queue {
		into.queue[i].call = call
	}
	return into
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// mapped copies a map and, with clone, its values.
func mapped[K comparable, V any](m map[K]V, clone func(V) V) map[K]V {
	if m == nil {
		return nil
	}
	into := make(map[K]V, len(m))
	for k, v := range m {
		into[k] = clone(v)
	}
	return into
}
