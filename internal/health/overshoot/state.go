package overshoot

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// state is what the Reconciler knows of families from one check to the next.
type state struct {
	mu       sync.Mutex
	families map[types.NamespacedName]*familyState
	gauge    *prometheus.GaugeVec
}

// familyState is what is known of one family. A queue gives a key to one worker at a time, whose it is then.
type familyState struct {
	key     types.NamespacedName
	root    types.UID
	history History
	// sets are those that were seen last.
	sets []types.UID
	// checkAfter is before when its machines are not counted again.
	checkAfter time.Time
	frozen     bool
	// cutOff reports that a step wrote something and then failed. It must be completed, whatever is seen by then.
	cutOff bool
}

// meet notes the sets of the family. What a set brings along that was taken over with its machines was wanted before.
func (known *familyState) meet(sets []*v1beta1.MachineSet) {
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
	m := &state{families: map[types.NamespacedName]*familyState{}, gauge: gauge}
	m.report(0)
	return m
}

// of returns what is known of a family: nothing, if there is another root of the same name now.
func (m *state) of(key types.NamespacedName, root types.UID) *familyState {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.families[key]; known != nil && known.root == root {
		copied := *known
		return &copied
	}
	return &familyState{key: key, root: root}
}

// note keeps what is known of a family from now on.
func (m *state) note(known *familyState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.families[known.key] = known
	m.report(m.frozen())
}

func (m *state) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.families[key]; known {
		delete(m.families, key)
		m.report(m.frozen())
	}
}

func (m *state) frozen() int {
	n := 0
	for _, known := range m.families {
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
