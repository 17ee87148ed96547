package overshoot

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

type state struct {
	mu     sync.Mutex
	fleets map[types.NamespacedName]*fleetState
	gauge  *prometheus.GaugeVec
}

// fleetState is what the Reconciler remembers about one fleet. Only one worker at a time uses it, because the queue
// gives a key to one worker.
type fleetState struct {
	key        types.NamespacedName
	root       types.UID
	history    History
	sets       []types.UID
	checkAfter time.Time
	frozen     bool
	// isInterrupted is true if the last freeze or thaw failed after a write. The step must be completed, even if the
	// number of machines no longer requires it.
	isInterrupted bool
}

// noteSets remembers the sets. Machines of a newly adopted set count towards the former size.
func (known *fleetState) noteSets(sets []*v1beta1.MachineSet) {
	uids := make([]types.UID, 0, len(sets))
	for _, set := range sets {
		if set.Status.Replicas > 0 && !slices.Contains(known.sets, set.UID) {
			known.history = known.history.ForgetWanted()
		}
		uids = append(uids, set.UID)
	}
	known.sets = uids
}

func newState(gauge *prometheus.GaugeVec) *state {
	m := &state{fleets: map[types.NamespacedName]*fleetState{}, gauge: gauge}
	m.report(0)
	return m
}

// get returns a copy of the state of a fleet. If the fleet is new, or its deployment was deleted and created again with
// the same name, the state is empty.
func (m *state) get(key types.NamespacedName, root types.UID) *fleetState {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.fleets[key]; known != nil && known.root == root {
		copied := *known
		return &copied
	}
	return &fleetState{key: key, root: root}
}

func (m *state) put(known *fleetState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fleets[known.key] = known
	m.report(m.frozen())
}

func (m *state) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.fleets[key]; known {
		delete(m.fleets, key)
		m.report(m.frozen())
	}
}

func (m *state) frozen() int {
	n := 0
	for _, known := range m.fleets {
		if known.frozen {
			n++
		}
	}
	return n
}

func (m *state) report(frozen int) {
	if m.gauge != nil {
		m.gauge.WithLabelValues(v1beta1.ReasonOvershoot).Set(float64(frozen))
	}
}
