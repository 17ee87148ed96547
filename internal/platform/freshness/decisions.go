package freshness

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Decisions records, for each object, the generation that a controller of this process wrote last. The controller
// made the decision about this write with the cache of the process. If a second controller of the process acts on
// this generation, it uses the same cache. Its cache is therefore at least as new as it was for the decision.
// Therefore the second controller need not wait until the cache contains the write, and need not read from the API
// server. The zero value is empty and ready to use. A nil *Decisions records nothing.
type Decisions struct {
	mu          sync.Mutex
	generations map[types.UID]int64
}

// Note records the generation of an object that resulted from a write.
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

// Made reports whether the given generation of the object is the generation that was recorded last with Note.
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
