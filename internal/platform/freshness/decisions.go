package freshness

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Decisions records the generation that a controller of this process wrote last for each object.
//
// A second controller of the same process uses the same cache as the first controller, which decided and wrote. When
// the second controller acts on a recorded generation, the cache is at least as new as at the first controller's
// decision. The second controller therefore needs neither to wait for the cache nor to read from the API server.
//
// The zero value is ready to use. A nil *Decisions records nothing.
type Decisions struct {
	mu          sync.Mutex
	generations map[types.UID]int64
}

// Note records the generation of an object after a write.
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

// Has reports whether a controller of this process recorded the object's generation with Note, and no other
// generation after that.
func (d *Decisions) Has(object types.UID, generation int64) bool {
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
