package machineclass

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// state is what a Reconciler remembers between passes. A restart costs one call to the provider for each class.
type state struct {
	mu      sync.Mutex
	classes map[types.NamespacedName]classState
}

type classState struct {
	fingerprint string
	validation  validation
	// failures counts consecutive temporary failures. retryAt is the next attempt, or zero.
	failures   int
	retryAt    time.Time
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
