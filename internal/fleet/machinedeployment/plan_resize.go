package machinedeployment

// resizing determines how a change of replicas is divided among the sets of several revisions.
type resizing int

const (
	// growInProportion divides both additional and surplus machines among the sets, in proportion to their replicas.
	growInProportion resizing = iota
	// shrinkOnly divides only surplus machines among the sets. In this case, all additional machines belong to the
	// wanted revision.
	shrinkOnly
)

// resize resizes the sets after a change of the deployment's replicas. If machines of several revisions exist, the
// proportion between the sets stays the same. Otherwise a broken revision could get all additional machines. The
// result heldBack is the number of machines with a delete mark that must not be deleted yet.
//
// During a rollout, resize changes the sets only once after each change of the deployment's replicas. All other
// changes are steps of the rollout. While rollouts are stopped, resize keeps the total number of machines between
// replicas and replicas + maxSurge.
func (d *draft) resize(how resizing) (heldBack int32) {
	active, total := d.active()
	changed := d.SizedFor != Unknown && d.SizedFor != d.Replicas
	rolls := d.mayRollOut()
	if len(active) < 2 {
		only := d.newest()
		if len(active) == 1 {
			only = active[0]
		}
		// During a rollout, the steps of the rollout change the current set until it has the desired replicas.
		if how == shrinkOnly || !rolls || changed && only != d.Current {
			d.resizeOnly(only, how)
		}
		return 0
	}
	if changed && d.SizedFor > d.Replicas {
		heldBack = d.releaseMarked(active, d.SizedFor-d.Replicas)
		_, total = d.active()
	}
	low, high := d.Replicas, d.Replicas+d.MaxSurge
	if d.Replicas == 0 {
		high = 0
	}
	switch {
	case changed:
		low = high
	case rolls && how == growInProportion:
		return heldBack
	}
	switch {
	case total > high:
		d.shrinkInProportion(active, total-high)
	case total < low && how == growInProportion:
		d.growInProportion(active, low-total)
	}
	return heldBack
}

// resizeOnly resizes the only set that has replicas.
func (d *draft) resizeOnly(only int, how resizing) {
	if only < 0 {
		return
	}
	switch set := d.Sets[only]; {
	case set.Replicas > d.Replicas:
		d.shrink(only, d.Replicas, "replicas")
	case set.Replicas < d.Replicas && how == growInProportion:
		d.grow(only, d.Replicas, "replicas")
	}
}

// active returns the indexes of the sets that have replicas, and the sum of their replicas.
func (d *draft) active() (sets []int, replicas int32) {
	for i, set := range d.Sets {
		if set.Replicas > 0 && !set.BeingDeleted {
			sets = append(sets, i)
			replicas += set.Replicas
		}
	}
	return sets, replicas
}

// newest returns the index of the set to resize if no set has replicas: the current set or, if there is none, the last
// set. If there is no set at all, newest returns -1.
func (d *draft) newest() int {
	if d.Current >= 0 {
		return d.Current
	}
	for i := len(d.Sets) - 1; i >= 0; i-- {
		if !d.Sets[i].BeingDeleted {
			return i
		}
	}
	return -1
}

// releaseMarked shrinks each set by the number of its machines with a delete mark, up to a total of n. The deployment's
// replicas were lowered by n in order to delete these machines. The result is the number of marked machines that
// must not be deleted yet.
func (d *draft) releaseMarked(active []int, n int32) (heldBack int32) {
	for _, i := range active {
		set := d.Sets[i]
		// A set deletes marked machines first, so its pending deletions are deletions of machines with a delete
		// mark.
		marked := min(max(0, set.Marked-pendingDeletions(set)), set.Replicas, n)
		if marked == 0 {
			continue
		}
		n -= marked
		heldBack += marked - d.shrink(i, set.Replicas-marked, "marked for deletion")
	}
	return heldBack
}

func (d *draft) shrinkInProportion(active []int, n int32) {
	for k, part := range share(n, d.replicasOf(active)) {
		d.shrink(active[k], d.Sets[active[k]].Replicas-part, "share of replicas")
	}
}

func (d *draft) growInProportion(active []int, n int32) {
	if d.Failing {
		var launching []int
		for _, i := range active {
			if d.isOld(i) {
				launching = append(launching, i)
			}
		}
		active = launching
	}
	for k, part := range share(min(n, d.capacity()), d.replicasOf(active)) {
		d.grow(active[k], d.Sets[active[k]].Replicas+part, "share of replicas")
	}
}

func (d *draft) replicasOf(sets []int) []int32 {
	replicas := make([]int32, len(sets))
	for k, i := range sets {
		replicas[k] = d.Sets[i].Replicas
	}
	return replicas
}

// share divides n into whole numbers in proportion to the weights. The remainder goes to the parts with the largest
// fractions. If fractions are equal, the last part takes precedence. If the sum of the weights is 0, all parts are 0.
func share(n int32, weights []int32) []int32 {
	parts := make([]int32, len(weights))
	var sum int64
	for _, w := range weights {
		sum += int64(w)
	}
	if n <= 0 || sum <= 0 {
		return parts
	}
	rest := n
	remainders := make([]int64, len(weights))
	for k, w := range weights {
		product := int64(n) * int64(w)
		parts[k] = int32(product / sum)
		remainders[k] = product % sum
		rest -= parts[k]
	}
	for ; rest > 0; rest-- {
		best := 0
		for k := range remainders {
			if remainders[k] >= remainders[best] {
				best = k
			}
		}
		parts[best]++
		remainders[best] = -1
	}
	return parts
}
