package drain

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// drainStates stores what the controller knows about the machines that it drains.
type drainStates struct {
	mu       sync.Mutex
	machines map[types.NamespacedName]*record
}

// record is what the controller knows about one machine. The fields are guarded by drainStates.mu, except drainPass and
// volumesPass, which belong to the goroutine that holds busy.
type record struct {
	uid  types.UID
	busy sync.Mutex

	drain        *Request
	drainOutcome Outcome
	drainPass    drainPass

	volumes        *VolumesRequest
	volumesOutcome Outcome
	volumesPass    volumesPass

	// triggered are pods to try again now, because their PodDisruptionBudget has changed.
	triggered map[types.UID]bool
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

// admitDrain stores a request in its record. first is true if the drain is new. changed is true if the drain must be
// checked again because the request has changed.
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

// supersededBy reports whether the request is for another drain than the recorded one. That is a drain of another node,
// or a drain that began after the recorded one was done, for example when a machine is updated in place twice.
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

// task returns what must be done for a machine: a drain, otherwise a wait for volumes, otherwise neither.
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

// inProgress reports whether a drain is to be continued: it was neither forgotten nor completed.
func (m *drainStates) inProgress(machine types.NamespacedName, r *record) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machines[machine] == r && !r.drainOutcome.Done
}

func (m *drainStates) forget(machine types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.machines, machine)
}

// markForRetry marks a pod of a machine for another attempt.
func (m *drainStates) markForRetry(machine types.NamespacedName, pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.machines[machine]; r != nil {
		if r.triggered == nil {
			r.triggered = map[types.UID]bool{}
		}
		r.triggered[pod] = true
	}
}

// takeTriggered returns the pods to try again, and clears them.
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

// setDrainOutcome stores an outcome. A completed drain stays completed, even if a pass that began before the drain was
// forced ends later.
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
