package machinedeployment

// resizing selects how a change of replicas is divided among the sets.
type resizing int

const (
	// growInProportion divides an increase or a reduction of replicas in proportion to the sets' replicas.
	growInProportion resizing = iota
	// shrinkOnly divides a reduction of replicas in proportion to the sets' replicas, but adds an increase to the
	// current set alone.
	shrinkOnly
)

// resize divides a change of replicas among the sets in proportion. If only one set grew, all additional machines could
// have a broken revision. heldBack is the number of machines with a delete mark that must not be deleted yet.
//
// During a rollout, resize acts once after each change of replicas. While rollouts are stopped, resize keeps the total
// between replicas and replicas + maxSurge.
func (d *draft) resize(how resizing) (heldBack int32) {
	active, total := d.active()
	changed := d.SizedFor != UnknownSize && d.SizedFor != d.Replicas
	rolls := d.mayRollOut()
	if d.isStopping() {
		d.growStaying()
		if rolls && !d.hasExcess() && d.SizedFor <= d.Replicas {
			return 0 // planRolling scales the current set.
		}
	}
	if len(active) < 2 {
		only := d.newestIndex()
		if len(active) == 1 {
			only = active[0]
		}
		// The steps of a rollout bring the current set to its desired replicas.
		if how == shrinkOnly || !rolls || changed && only != d.CurrentIndex {
			d.resizeOnly(only, how)
		}
		return 0
	}
	if changed && d.SizedFor > d.Replicas {
		heldBack = d.releaseMarked(active, d.SizedFor-d.Replicas)
		_, total = d.active()
	}
	low, high := d.Replicas, d.Replicas+d.MaxSurge
	if d.Replicas == 0 || d.isStopping() && !d.hasExcess() {
		high = d.Replicas
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

func (d *draft) active() (sets []int, replicas int32) {
	for i, set := range d.Sets {
		if set.Replicas > 0 && !set.BeingDeleted {
			sets = append(sets, i)
			replicas += set.Replicas
		}
	}
	return sets, replicas
}

// newestIndex returns the index of the current set, or else of the last set, or -1 without sets.
func (d *draft) newestIndex() int {
	if d.CurrentIndex >= 0 {
		return d.CurrentIndex
	}
	for i := len(d.Sets) - 1; i >= 0; i-- {
		if !d.Sets[i].BeingDeleted {
			return i
		}
	}
	return -1
}

// releaseMarked shrinks the sets by at most n replicas in total, for their machines with a delete mark. heldBack is the
// number of marked machines that must not be deleted yet.
func (d *draft) releaseMarked(active []int, n int32) (heldBack int32) {
	for _, i := range active {
		set := d.Sets[i]
		// Sets delete machines with a delete mark first. So pending deletions concern marked machines, and these
		// machines must not be counted twice.
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
	parts := share(n, d.replicasOf(active))
	if d.isStopping() {
		low, high := d.Sets[d.CurrentIndex].Replicas-d.mostOfNewest(), n
		if d.PauseAfter > 0 {
			high = low // The first machines of the new revision stay, so that their time does not start again.
		}
		d.limitNewest(active, parts, n, low, high)
	}
	for k, part := range parts {
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
	n = min(n, d.capacity())
	parts := share(n, d.replicasOf(active))
	if d.isStopping() {
		d.limitNewest(active, parts, n, 0, d.mostOfNewest()-d.Sets[d.CurrentIndex].Replicas)
	}
	for k, part := range parts {
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

// share divides n in proportion to the weights. The parts are rounded down, and the remainder is added to the parts
// with the largest fractions. Among equal fractions, the last part is preferred. Zero weights get nothing.
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
