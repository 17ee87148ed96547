package drain

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

type records struct {
	mu       sync.Mutex
	machines map[types.NamespacedName]*record
}

type record struct {
	uid types.UID

	// records.mu guards the following fields. Each request is nil until the caller sends the first request of its kind.
	drain    *Request
	drained  Outcome
	volumes  *VolumesRequest
	detached Outcome
	// triggeredPods contains pods that may be tried again now, because their PodDisruptionBudget has changed.
	triggeredPods map[types.UID]bool

	// The following fields need no lock, because the queue never gives a machine to two workers at the same time.
	drainPass   drainPass
	volumesPass volumesPass
}

type drainPass struct {
	recheck  time.Duration
	attempts map[types.UID]Attempt
	tracker  successorTracker
	report   report
	denials  int // number of consecutive denials

	// volumeOf contains the PersistentVolumes of bound claims. unusedSince contains the times at which the attached
	// volumes were first found unused. Both are empty unless pods with volumes are evicted one at a time.
	volumeOf    map[types.NamespacedName]string
	unusedSince map[string]time.Time
}

type volumesPass struct {
	recheck time.Duration
	since   time.Time // the minimum freshness of the next read
	report  report
}

// admitDrain stores a request in the record of its machine. It also returns the previous request for the Node, or nil
// if there is none.
func (m *records) admitDrain(request Request) (r *record, before *Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r = m.machines[request.Machine]
	if r == nil || r.uid != request.UID ||
		r.drain != nil && (r.drain.Node != request.Node || r.drain.NodeUID != request.NodeUID) {
		r = m.newRecord(request.Machine, request.UID)
	}
	before, r.drain = r.drain, &request
	return r, before
}

// forVolumes returns the record for a request. If the request continues a wait for volumes, forVolumes also returns the
// previous request of this wait.
func (m *records) forVolumes(request VolumesRequest) (r *record, before *VolumesRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r = m.machines[request.Machine]
	if r == nil || r.uid != request.UID ||
		r.volumes != nil && (r.volumes.Node != request.Node || r.volumes.NodeUID != request.NodeUID) {
		r = m.newRecord(request.Machine, request.UID)
	}
	if r.volumes == nil || r.detached.IsDone && request.DrainTime.After(r.volumes.DrainTime) {
		r.volumes, r.detached, r.volumesPass = nil, Outcome{}, volumesPass{}
	}
	return r, r.volumes
}

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

func (m *records) task(machine types.NamespacedName) (r *record, drain *Request, volumes *VolumesRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r = m.machines[machine]
	switch {
	case r == nil:
	case r.drain != nil && !r.drained.IsDone:
		drain = r.drain
	case r.volumes != nil && !r.detached.IsDone:
		volumes = r.volumes
	}
	return r, drain, volumes
}

// inProgress reports whether the workers must continue a drain. The result is false if the drain is done, or if Forget
// has removed the record of the machine.
func (m *records) inProgress(machine types.NamespacedName, r *record) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machines[machine] == r && !r.drained.IsDone
}

func (m *records) forget(machine types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.machines, machine)
}

func (m *records) outcome(of *Outcome) Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *of
}

// setOutcome replaces an outcome in a record, unless the drain or wait is done already. For example, a user may end a
// drain by force during a pass. The result of the pass must not replace the outcome that the user has forced.
func (m *records) setOutcome(of *Outcome, to Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !of.IsDone {
		*of = to
	}
}

func (m *records) takeTriggered(r *record) map[types.UID]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	triggered := r.triggeredPods
	r.triggeredPods = nil
	return triggered
}
