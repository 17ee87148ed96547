package machinedeployment

import (
	"fmt"

	"machinist.dev/machinist/internal/platform/wording"
)

// planRecreate plans the next step for strategy Recreate: new machines are created after the last old machine is
// gone.
func (d *draft) planRecreate() string {
	var remaining int32
	for i, set := range d.Sets {
		if !d.isOld(i) {
			continue
		}
		d.shrink(i, 0, "old revision")
		remaining += ceiling(d.Sets[i]) + set.Deleting
	}
	current := d.Sets[d.CurrentIndex]
	if current.Replicas > d.Replicas {
		d.shrink(d.CurrentIndex, d.Replicas, "more than replicas")
	}
	if remaining > 0 {
		return fmt.Sprintf("%s of an old revision must be gone before machines of the new revision are created",
			wording.Count(remaining, "machine"))
	}
	d.grow(d.CurrentIndex, d.Replicas, "new revision")
	if current.Available < d.Replicas && current.Replicas == d.Replicas {
		return waitingForAvailable(current, d.Replicas)
	}
	return ""
}
