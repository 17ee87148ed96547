package drain

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// drainStates is what the controller knows of the machines on their way out.
type drainStates struct {
	mu       sync.Mutex
	machines map[types.NamespacedName]*record
}

// record is one machine on its way out. Its fields are guarded by memory.mu, except for those in the two passes, which
// belong to who holds busy.
type record struct {
	uid  types.UID
	busy sync.Mutex

	drain        *Request
	drainOutcome Outcome
	drainPass    drainPass

	volumes        *VolumesRequest
	volumesOutcome Outcome
	volumesPass    volumesPass

	// triggered are pods to try again now, since their PodDisruptionBudget has changed.
	triggered map[types.UID]bool
}

// drainPass is what one pass over a node leaves for the next one.
type drainPass struct {
	recheck time.Duration
	tries   map[types.UID]Try
	// returning has the pods that come back to the node although it is cordoned.
	returning returning
	report    report
	denials   int // in a row
}

// volumesPass is what one check a node's volumes leaves for the next one.
type volumesPass struct {
	recheck time.Duration
	since   time.Time // what is read must be as new
	report  report
}

// admitDrain takes a request to its record. first is true when the drain was not known, changed when it must be looked
// at again because the request has changed.
func (m *drainStates) admitDrain(request Request) (r *record, first, changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r = m.machines[request.Machine]
	if r == nil || r.uid != request.UID || r.supersededBy(request) {
		r = m.newRecord(request.Machine, request.UID)
	}
	if first = r.drain == nil; first {
		r.drainOutcome = Outcome{Reason: v1beta1.ReasonDraining, Message: drainingMessage(request, Decision{}, nil)}
	}
	changed = !first && !r.drain.equal(request)
	r.drain = &request
	return r, first, changed
}

// supersededBy shows whether the request is for another drain than the one recorded: of another node, or one that began
// after this one was done, as happens when a machine is updated in place twice.
func (r *record) supersededBy(request Request) bool {
	return r.drain != nil &&
		(r.drain.Node != request.Node || r.drain.NodeUID != request.NodeUID ||
			r.drainOutcome.Done && request.Start.After(r.drainOutcome.LastPodGone))
}

// admitVolumes is like admitDrain for the wait for volumes.
func (m *drainStates) admitVolumes(request VolumesRequest) (r *record, first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r = m.machines[request.Machine]
	if r == nil || r.uid != request.UID {
		r = m.newRecord(request.Machine, request.UID)
	}
	if r.volumes != nil && (r.volumes.Node != request.Node || r.volumes.NodeUID != request.NodeUID ||
		r.volumesOutcome.Done && request.Drained.After(r.volumes.Drained)) {
		r.volumes, r.volumesOutcome, r.volumesPass = nil, Outcome{}, volumesPass{}
	}
	if first = r.volumes == nil; first {
		r.volumesOutcome = Outcome{Reason: v1beta1.ReasonWaitingForVolumeDetach, Message: volumesMessage(request, nil)}
	}
	r.volumes = &request
	return r, first
}

func (m *drainStates) newRecord(machine types.NamespacedName, uid types.UID) *record {
	if m.machines == nil {
		m.machines = map[types.NamespacedName]*record{}
	}
	r := &record{uid: uid}
	m.machines[machine] = r
	return r
}

// task returns what must be done for a machine: a drain, or else a wait for volumes, or neither.
func (m *drainStates) task(machine types.NamespacedName) (r *record, drain *Request, volumes *VolumesRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r = m.machines[machine]
	switch {
	case r == nil:
	case r.drain != nil && !r.drainOutcome.Done:
		drain = r.drain
	case r.volumes != nil && !r.volumesOutcome.Done:
		volumes = r.volumes
	}
	return r, drain, volumes
}

// wanted shows whether a drain is still to go on: it was neither forgotten nor ended.
func (m *drainStates) wanted(machine types.NamespacedName, r *record) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machines[machine] == r && !r.drainOutcome.Done
}

func (m *drainStates) forget(machine types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.machines, machine)
}

// notify notes that the pods of a machine may be tried again.
func (m *drainStates) notify(machine types.NamespacedName, pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.machines[machine]; r != nil {
		if r.triggered == nil {
			r.triggered = map[types.UID]bool{}
		}
		r.triggered[pod] = true
	}
}

// takeTriggered returns the pods to try again and clears them.
func (m *drainStates) takeTriggered(r *record) map[types.UID]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	triggered := r.triggered
	r.triggered = nil
	return triggered
}

func (m *drainStates) drainOutcomeOf(r *record) Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	return r.drainOutcome
}

func (m *drainStates) volumesOutcomeOf(r *record) Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	return r.volumesOutcome
}

// setDrainOutcome records an outcome. What is done stays so: a pass that was under way when the drain was forced has no
// say any more.
func (m *drainStates) setDrainOutcome(r *record, o Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !r.drainOutcome.Done {
		r.drainOutcome = o
	}
}

// setVolumesOutcome is like setDrainOutcome for the wait for volumes.
func (m *drainStates) setVolumesOutcome(r *record, o Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !r.volumesOutcome.Done {
		r.volumesOutcome = o
	}
}
