package orphans

import (
	"maps"
	"time"
)

// state is all that a Collector keeps between passes. Losing it at a restart costs the time of one pass.
type state struct {
	// began is when the last pass did, zero before the first.
	began time.Time
	// observations are those of the last pass, instances its numbers of instances by namespace.
	observations Observations
	instances    map[string]int
	// mismatch is what was made known of another cluster id.
	mismatch string
}

// Clone returns a Collector that works with other options and remembers what c remembers at this moment. From then on
// neither knows what the other does. It is for simulations, and must not be called during a pass.
func (c *Collector) Clone(o Options) *Collector {
	f := New(o)
	f.state = c.state
	f.state.observations = c.state.observations.clone()
	f.state.instances = maps.Clone(c.state.instances)
	return f
}
