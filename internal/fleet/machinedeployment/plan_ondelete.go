package machinedeployment

import (
	"fmt"

	"machinist.dev/machinist/internal/platform/wording"
)

// planOnDelete plans the next step for strategy OnDelete: the current set replaces the machines that old sets have
// lost. Old machines without an instance are replaced immediately, because they run no pods and might never get an
// instance.
func (d *draft) planOnDelete() string {
	var oldReplicas int32
	for i, set := range d.Sets {
		if !d.isOld(i) {
			continue
		}
		if set.Live < set.Replicas {
			d.shrink(i, set.Live, "machines were deleted")
		}
		if set.Unlaunched > 0 {
			d.shrink(i, set.Live-set.Unlaunched, "machines have no instance")
		}
		oldReplicas += d.Sets[i].Replicas
	}
	d.grow(d.CurrentIndex, d.Replicas-oldReplicas, "new revision")
	if oldReplicas == 0 {
		if current := d.Sets[d.CurrentIndex]; current.Available < d.Replicas {
			return waitingForAvailable(current, d.Replicas)
		}
		return ""
	}
	return fmt.Sprintf("with strategy OnDelete, you must delete %s of an old revision",
		wording.Count(oldReplicas, "machine"))
}
