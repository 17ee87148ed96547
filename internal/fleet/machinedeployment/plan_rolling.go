package machinedeployment

import (
	"fmt"
	"math"

	"machinist.dev/machinist/internal/platform/wording"
)

// rolling plans the next step of a rolling update: the wanted revision grows within replicas + maxSurge, old revisions
// shrink by the machines that are available beyond replicas − maxUnavailable. It returns what the rollout waits for.
func (d *draft) rolling() string {
	grown := d.growCurrent()
	shrunk, blockedBy := d.shrinkOld()
	current := d.Sets[d.Current]
	switch {
	case grown || shrunk:
		return ""
	case blockedBy != "":
		return blockedBy
	case current.Replicas < d.Replicas:
		return fmt.Sprintf("%s exist or may still be created, and at most %d may (replicas %d + maxSurge %d)",
			wording.Count(d.sum(ceiling), "machine"), d.Replicas+d.MaxSurge, d.Replicas, d.MaxSurge)
	case current.Available < d.Replicas:
		return waitingForAvailable(current, d.Replicas)
	}
	return ""
}

func waitingForAvailable(current Set, replicas int32) string {
	return fmt.Sprintf("%d of %s of the new revision available", current.Available, wording.Count(replicas, "machine"))
}

// growCurrent brings the set of the wanted revision closer to replicas.
func (d *draft) growCurrent() bool {
	if d.Sets[d.Current].Replicas > d.Replicas {
		return d.shrink(d.Current, d.Replicas, "more than replicas") > 0
	}
	return d.grow(d.Current, d.Replicas, "new revision") > 0
}

// shrinkOld shrinks old sets, those with unavailable machines first, or says what prevents it.
//
// Two more limits apply beside those of shrink. Machines being deleted still cost money and quota, so there are never
// more of them than maxSurge + maxUnavailable. And machines that are unavailable count as if they came back:
// otherwise, in an outage that makes all machines unavailable, all old machines would be deleted for new ones that
// are unavailable as well.
func (d *draft) shrinkOld() (bool, string) {
	var old []int
	var replicas int32
	for i, set := range d.Sets {
		if d.old(i) && set.Replicas > 0 && !set.Leaving {
			old = append(old, i)
			replicas += set.Replicas
		}
	}
	if len(old) == 0 {
		return false, ""
	}
	current := d.Sets[d.Current]
	// Machines whose deletion is blocked stay as long as they are needed.
	inReserve := replicas + d.blockedDeletions(d.old) + guaranteedAvailable(current) - d.minAvailable()
	if inReserve <= 0 {
		return false,
			fmt.Sprintf("%s, and at least %d must be available (replicas %d − maxUnavailable %d) before any of %s of an old revision may go",
				waitingForAvailable(current, current.Replicas), d.minAvailable(), d.Replicas, d.MaxUnavailable,
				wording.Count(replicas, "machine"))
	}
	var shrunk bool
	lower := func(i int, by int32, why string) {
		set := d.Sets[i]
		// Replicas without a machine go without a deletion.
		missing := max(0, set.Replicas-set.Live)
		by = min(by, inReserve, missing+d.mayDelete())
		if by <= 0 {
			return
		}
		n := d.shrink(i, set.Replicas-by, why)
		inReserve -= n
		shrunk = shrunk || n > 0
	}
	for _, i := range old {
		lower(i, d.Sets[i].Replicas-harmless(d.Sets[i]), "old revision, unavailable first")
	}
	for _, i := range old {
		lower(i, d.Sets[i].Replicas, "old revision")
	}
	switch {
	case shrunk:
		return true, ""
	case d.mayDelete() <= 0:
		return false, fmt.Sprintf("%s being deleted, at most %d may be at a time (maxSurge %d + maxUnavailable %d)",
			wording.Count(d.dying(), "machine"), d.MaxSurge+d.MaxUnavailable, d.MaxSurge, d.MaxUnavailable)
	}
	return false,
		fmt.Sprintf("%d available, and at least %d must be (replicas %d − maxUnavailable %d) before any of %s of an old revision may go",
			d.sum(guaranteedAvailable), d.minAvailable(), d.Replicas, d.MaxUnavailable, wording.Count(replicas, "machine"))
}

// dying is the number of machines that are being deleted or will be.
func (d *draft) dying() int32 {
	everywhere := func(int) bool { return true }
	return max(0, d.sum(func(s Set) int32 { return s.Deleting + pendingDeletions(s) })-d.blockedDeletions(everywhere))
}

// mayDelete is how many more deletions a rollout may cause now.
func (d *draft) mayDelete() int32 {
	if d.Replicas == 0 {
		return math.MaxInt32 / 2
	}
	return max(0, d.MaxSurge+d.MaxUnavailable-d.dying())
}
