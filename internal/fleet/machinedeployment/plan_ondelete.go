package machinedeployment

import (
	"fmt"

	"machinist.dev/machinist/internal/platform/wording"
)

// onDelete plans a rollout in which old machines are deleted by hand: the wanted revision replaces the machines that
// old sets have lost. A machine that has no instance runs nothing, and might never get one: it is replaced at once.
func (d *draft) onDelete() string {
	var oldReplicas int32
	for i, set := range d.Sets {
		if !d.old(i) {
			continue
		}
		if set.Live < set.Replicas {
			d.shrink(i, set.Live, "its machine was deleted")
		}
		if set.Unlaunched > 0 {
			d.shrink(i, set.Live-set.Unlaunched, "its machine has no instance")
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
