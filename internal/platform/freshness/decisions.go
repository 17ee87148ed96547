package freshness

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Decisions knows which generation of an object this process wrote last after it had decided from its cache. Who
// carries out that generation by the same cache need not wait until the cache is as new as the write, nor read live: it
// sees at least what the decision was made from. The zero value knows none and is ready to use; nil knows none and
// notes none.
type Decisions struct {
	mu          sync.Mutex
	generations map[types.UID]int64
}

// Note records a generation that was written.
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

// Made reports whether the generation was noted, and none since.
func (d *Decisions) Made(object types.UID, generation int64) bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	noted, ok := d.generations[object]
	return ok && noted == generation
}

// Forget drops what is known of an object that is gone.
func (d *Decisions) Forget(object types.UID) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.generations, object)
}
