package machinedeployment

// resizing says how a change of replicas is shared among sets of several revisions.
type resizing int

const (
	// growInProportion spreads machines to add over the sets, and machines to remove as well.
	growInProportion resizing = iota
	// shrinkOnly spreads machines to remove; all that are added are of the wanted revision.
	shrinkOnly
)

// resize follows a change of replicas while machines of several revisions exist, so that a rollout keeps its
// proportion and a bad revision does not get all of the growth. It returns how many machines that are marked for
// deletion must not be deleted yet.
//
// During a rollout this happens once for each change of replicas; all other changes are steps of the rollout. While
// rollouts are stopped, it keeps the total between replicas and replicas + maxSurge.
func (d *draft) resize(how resizing) (owed int32) {
	active, total := d.active()
	changed := d.SizedFor != Unknown && d.SizedFor != d.Replicas
	rolls := d.rolls()
	if len(active) < 2 {
		only := d.newest()
		if len(active) == 1 {
			only = active[0]
		}
		// A rollout brings the current set to replicas itself.
		if how == shrinkOnly || !rolls || changed && only != d.Current {
			d.resizeOnly(only, how)
		}
		return 0
	}
	if changed && d.SizedFor > d.Replicas {
		owed = d.releaseMarked(active, d.SizedFor-d.Replicas)
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
		return owed
	}
	switch {
	case total > high:
		d.shrinkInProportion(active, total-high)
	case total < low && how == growInProportion:
		d.growInProportion(active, low-total)
	}
	return owed
}

// resizeOnly changes the only set that has replicas.
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

// active returns the sets that have replicas, and their sum.
func (d *draft) active() (sets []int, replicas int32) {
	for i, set := range d.Sets {
		if set.Replicas > 0 && !set.Leaving {
			sets = append(sets, i)
			replicas += set.Replicas
		}
	}
	return sets, replicas
}

// newest returns the set that follows a change of replicas when no set has any: the current one or else the last; -1 if
// there is no set.
func (d *draft) newest() int {
	if d.Current >= 0 {
		return d.Current
	}
	for i := len(d.Sets) - 1; i >= 0; i-- {
		if !d.Sets[i].Leaving {
			return i
		}
	}
	return -1
}

// releaseMarked shrinks sets by their machines that are marked for deletion, at most n in all: these are the machines
// for which replicas were lowered by n. It returns how many of them must wait.
func (d *draft) releaseMarked(active []int, n int32) (owed int32) {
	for _, i := range active {
		set := d.Sets[i]
		// Marked machines go first, so the set's pending deletions are among them.
		marked := min(max(0, set.Marked-pendingDeletions(set)), set.Replicas, n)
		if marked == 0 {
			continue
		}
		n -= marked
		owed += marked - d.shrink(i, set.Replicas-marked, "marked for deletion")
	}
	return owed
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
			if d.old(i) {
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

// share divides n in proportion to weights into whole numbers that add up to n. The remainder goes to the largest
// fractions, of equal ones to the last. Without weights all parts are 0.
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
