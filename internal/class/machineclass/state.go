package machineclass

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// state is all that a Reconciler keeps between passes. Losing it at a restart costs one question to the provider for
// each class.
type state struct {
	mu      sync.Mutex
	classes map[types.NamespacedName]classState
}

// classState is what is kept about one class.
type classState struct {
	// fingerprint is that of the question to which decision is the answer.
	fingerprint string
	validation  validation
	// failures counts the answers in a row that may pass, and retryAt is when to ask again; zero is never.
	failures int
	retryAt  time.Time
	// reportedAt is when the number of Machines that hold up the class's deletion was last written.
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
