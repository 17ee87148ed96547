package machinedeployment

import (
	"fmt"

	"machinist.dev/machinist/internal/wording"
)

// onDelete plans a rollout in which people delete the old machines: the wanted revision replaces the machines that
// old sets have lost.
func (d *draft) onDelete() string {
	var oldReplicas int32
	for i, set := range d.Sets {
		if !d.old(i) {
			continue
		}
		if set.Live < set.Replicas {
			d.shrink(i, set.Live, "its machine was deleted")
		}
		oldReplicas += d.Sets[i].Replicas
	}
	d.grow(d.Current, d.Replicas-oldReplicas, "new revision")
	if oldReplicas == 0 {
		if current := d.Sets[d.Current]; current.Available < d.Replicas {
			return waitingForAvailable(current, d.Replicas)
		}
		return ""
	}
	return fmt.Sprintf("someone has to delete %s of an old revision", wording.Count(oldReplicas, "machine"))
}
