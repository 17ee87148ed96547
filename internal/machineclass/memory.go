package machineclass

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memory is all that a Reconciler remembers between passes. Losing it at a restart costs one question to the provider for
// each class.
type memory struct {
	mu      sync.Mutex
	classes map[types.NamespacedName]recollection
}

// recollection is what is remembered of one class.
type recollection struct {
	// fingerprint is that of the question to which verdict is the answer.
	fingerprint string
	verdict     verdict
	// failures counts the answers in a row that may pass, and retryAt is when to ask again; zero is never.
	failures int
	retryAt  time.Time
	// toldAt is when the number of Machines that hold up the class's deletion was last written.
	toldAt time.Time
}

func newMemory() *memory { return &memory{classes: map[types.NamespacedName]recollection{}} }

func (m *memory) of(key types.NamespacedName) recollection {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.classes[key]
}

func (m *memory) set(key types.NamespacedName, r recollection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.classes[key] = r
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.classes, key)
}
