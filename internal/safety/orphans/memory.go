package orphans

import (
	"maps"
	"time"
)

// memory is all that a Collector remembers between passes. Losing it at a restart costs the time of one pass.
type memory struct {
	// began is when the last pass did, zero before the first.
	began time.Time
	// sightings are those of the last pass, instances its numbers of instances by namespace.
	sightings Observations
	instances map[string]int
	// mismatch is what was made known of another cluster id.
	mismatch string
}

// Fork returns a Collector that works with other options and remembers what c remembers at this moment. From then on
// neither knows what the other does. It is for simulations, and must not be called during a pass.
func (c *Collector) Fork(o Options) *Collector {
	f := New(o)
	f.memory = c.memory
	f.memory.sightings = c.memory.sightings.clone()
	f.memory.instances = maps.Clone(c.memory.instances)
	return f
}
