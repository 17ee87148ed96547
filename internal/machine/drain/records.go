package drain

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// records stores what the controller knows about the machines that it drains.
type records struct {
	mu       sync.Mutex
	machines map[types.NamespacedName]*record
}

// record is what the controller knows about one machine.
type record struct {
	uid types.UID

	// The following fields are guarded by records.mu. A request is nil until the caller sends it.
	drain    *Request
	drained  Outcome
	volumes  *VolumesRequest
	detached Outcome
	// triggered are pods to try again now, because their PodDisruptionBudget has changed.
	triggered map[types.UID]bool

	// The following fields are what one pass leaves for the next one. The queue gives a machine to one worker at a time.
	drainPass   drainPass
	volumesPass volumesPass
}

// drainPass is the state that one pass over a node leaves for the next one.
type drainPass struct {
	recheck  time.Duration
	attempts map[types.UID]Attempt
	// tracker finds pods that return to the node although it is cordoned.
	tracker successorTracker
	report  report
	denials int // consecutive
}

// volumesPass is the state that one check of a node's volumes leaves for the next one.
type volumesPass struct {
	recheck time.Duration
	since   time.Time // the minimum freshness of the next read
	report  report
}

// admitDrain stores a request in its record. changed is true if the workers must check the Node because of it.
func (m *records) admitDrain(request Request) (r *record, changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r = m.machines[request.Machine]
	if r == nil || r.uid != request.UID ||
		r.drain != nil && (r.drain.Node != request.Node || r.drain.NodeUID != request.NodeUID) {
		r = m.newRecord(request.Machine, request.UID)
	}
	changed = r.drain == nil || !r.drain.equal(request)
	r.drain = &request
	return r, changed
}

// forVolumes returns the record for a request, and the request that it replaces. The latter is nil if this is another
// wait: the first one for the Node, or one that began after the last wait was over.
func (m *records) forVolumes(request VolumesRequest) (r *record, before *VolumesRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r = m.machines[request.Machine]
	if r == nil || r.uid != request.UID ||
		r.volumes != nil && (r.volumes.Node != request.Node || r.volumes.NodeUID != request.NodeUID) {
		r = m.newRecord(request.Machine, request.UID)
	}
	if r.volumes == nil || r.detached.Done && request.Drained.After(r.volumes.Drained) {
		r.volumes, r.detached, r.volumesPass = nil, Outcome{}, volumesPass{}
	}
	return r, r.volumes
}

// admitVolumes stores a request in its record. The workers process it from now on.
func (m *records) admitVolumes(r *record, request VolumesRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.volumes = &request
}

func (m *records) newRecord(machine types.NamespacedName, uid types.UID) *record {
	if m.machines == nil {
		m.machines = map[types.NamespacedName]*record{}
	}
	r := &record{uid: uid}
	m.machines[machine] = r
	return r
}

// task returns what must be done for a machine: a drain, otherwise a wait for volumes, otherwise neither.
func (m *records) task(machine types.NamespacedName) (r *record, drain *Request, volumes *VolumesRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r = m.machines[machine]
	switch {
	case r == nil:
	case r.drain != nil && !r.drained.Done:
		drain = r.drain
	case r.volumes != nil && !r.detached.Done:
		volumes = r.volumes
	}
	return r, drain, volumes
}

// inProgress reports whether a drain is to be continued: it was neither forgotten nor completed.
func (m *records) inProgress(machine types.NamespacedName, r *record) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machines[machine] == r && !r.drained.Done
}

func (m *records) forget(machine types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.machines, machine)
}

// outcome returns an outcome of a record.
func (m *records) outcome(of *Outcome) Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *of
}

// setOutcome replaces an outcome of a record. What is done stays done, even if a pass that began before the drain was
// forced ends later.
func (m *records) setOutcome(of *Outcome, to Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !of.Done {
		*of = to
	}
}

// takeTriggered returns the pods to try again, and clears them.
func (m *records) takeTriggered(r *record) map[types.UID]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	triggered := r.triggered
	r.triggered = nil
	return triggered
}
