package freshness

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Decisions records which generation of an object this process wrote last, after it had decided from its cache. A
// controller that carries out that generation with the same cache sees at least the state from which the decision was
// made. It need not wait until the cache contains the write, and need not read live. The zero value contains no
// generations and is ready to use. A nil *Decisions records nothing.
type Decisions struct {
	mu          sync.Mutex
	generations map[types.UID]int64
}

// Note records the generation that was written to an object.
func (d *Decisions) Note(object types.UID, generation int64) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.generations == nil {
		d.generations = map[types.UID]int64{}
	}
	d.generations[object] = generation
}

// Made reports whether the generation is the one that was noted last.
func (d *Decisions) Made(object types.UID, generation int64) bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	noted, ok := d.generations[object]
	return ok && noted == generation
}

// Forget removes a deleted object.
func (d *Decisions) Forget(object types.UID) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.generations, object)
}
