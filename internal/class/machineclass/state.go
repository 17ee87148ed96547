package machineclass

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// state is everything that a Reconciler keeps in memory between passes. If the state is lost in a restart, each
// class costs one call to the provider.
type state struct {
	mu      sync.Mutex
	classes map[types.NamespacedName]classState
}

// classState is the state of one class.
type classState struct {
	// fingerprint identifies the inputs of the last validation.
	fingerprint string
	validation  validation
	// failures is the number of consecutive temporary failures. retryAt is the time of the next attempt. Zero means that
	// there is none.
	failures int
	retryAt  time.Time
	// reportedAt is when the number of Machines that hold the class was last written.
	reportedAt time.Time
}

func newState() *state { return &state{classes: map[types.NamespacedName]classState{}} }

func (m *state) of(key types.NamespacedName) classState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.classes[key]
}

func (m *state) set(key types.NamespacedName, r classState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.classes[key] = r
}

func (m *state) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.classes, key)
}
