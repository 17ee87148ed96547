package machinedeployment

import (
	"fmt"

	"machinist.dev/machinist/api/v1beta1"
)

// onDelete plans a rollout in which people delete the old machines: an old set that has lost some gives their places to
// the wanted revision. With InPlace, which is not carried out, old sets keep their places; only growth is of the wanted
// revision.
func (d *draft) onDelete() string {
	var kept int32
	for i, set := range d.Sets {
		if !d.old(i) {
			continue
		}
		if d.Strategy == v1beta1.StrategyOnDelete && set.Live < set.Replicas {
			d.shrink(i, set.Live, "its machine was deleted")
		}
		kept += d.Sets[i].Replicas
	}
	d.grow(d.Current, d.Replicas-kept, "new revision")
	if kept == 0 {
		if current := d.Sets[d.Current]; current.Available < d.Replicas {
			return waitingForAvailable(current, d.Replicas)
		}
		return ""
	}
	if d.Strategy == v1beta1.StrategyInPlace {
		return fmt.Sprintf("strategy InPlace is not carried out, and nothing is done about %s of an old revision", machines(kept))
	}
	return fmt.Sprintf("someone has to delete %s of an old revision", machines(kept))
}
