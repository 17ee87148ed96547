package machinedeployment

import (
	"fmt"
	"math"

	"machinist.dev/machinist/internal/platform/wording"
)

// planRolling plans the next step of a rolling update within maxSurge and maxUnavailable. The result is the value of
// Plan.WaitMessage.
func (d *draft) planRolling() string {
	grown := d.growCurrent()
	shrunk, blockedBy := d.shrinkOld()
	current, wanted := d.Sets[d.CurrentIndex], d.wantedOfNewest()
	switch {
	case grown || shrunk:
		return ""
	case blockedBy != "":
		return blockedBy
	case current.Replicas < wanted:
		return fmt.Sprintf("the sets have, or may still create, %s, and the limit is %d (replicas %d + maxSurge %d)",
			wording.Count(d.sum(ceiling), "machine"), d.Replicas+d.MaxSurge, d.Replicas, d.MaxSurge)
	case current.Available < wanted:
		return waitingForAvailable(current, wanted)
	case wanted < d.Replicas && d.sum(pendingDeletions) > 0:
		return fmt.Sprintf("%s must still be deleted", wording.Count(d.sum(pendingDeletions), "machine"))
	case wanted < d.Replicas:
		d.atRest = true
		return d.whyStopped()
	}
	return ""
}

func waitingForAvailable(current Set, replicas int32) string {
	return fmt.Sprintf("%d of %d machines of the new revision are available", current.Available, replicas)
}

func (d *draft) growCurrent() bool {
	wanted := d.wantedOfNewest()
	if d.Sets[d.CurrentIndex].Replicas > wanted {
		return d.shrink(d.CurrentIndex, wanted, "more than replicas") > 0
	}
	return d.grow(d.CurrentIndex, wanted, "new revision") > 0
}

// shrinkOld shrinks old sets, starting with sets that have unavailable machines. If shrinkOld cannot shrink any set,
// it returns the reason.
//
// The method shrink protects available machines. shrinkOld has two further limits. At most maxSurge + maxUnavailable
// machines are deleted at a time, because machines being deleted still cost money and quota. Old machines are protected
// by maxUnavailable even while they are unavailable. Otherwise all old machines would be deleted during an outage of
// all machines.
func (d *draft) shrinkOld() (bool, string) {
	var old []int
	var replicas int32
	stay := d.staying()
	for i, set := range d.Sets {
		if !d.isOld(i) || set.BeingDeleted {
			continue
		}
		replicas += set.Replicas
		if set.Replicas > stay[i] {
			old = append(old, i)
		}
	}
	if len(old) == 0 {
		return false, ""
	}
	current := d.Sets[d.CurrentIndex]
	// A machine whose deletion is blocked stays while it is needed.
	inReserve := replicas + d.blockedDeletions(d.isOld) + guaranteedAvailable(current) - d.minAvailable()
	if inReserve <= 0 {
		return false, fmt.Sprintf("%s; while machines of an old revision are deleted (%d left), %s",
			waitingForAvailable(current, current.Replicas), replicas, d.mustStayAvailable())
	}
	var shrunk bool
	lower := func(i int, by int32, why string) {
		set := d.Sets[i]
		// If a set has fewer machines than replicas, lowering the replicas by the difference deletes no machine.
		missing := max(0, set.Replicas-set.Live)
		by = min(by, set.Replicas-stay[i], inReserve, missing+d.mayDelete())
		if by <= 0 {
			return
		}
		n := d.shrink(i, set.Replicas-by, why)
		inReserve -= n
		shrunk = shrunk || n > 0
	}
	for _, i := range old {
		lower(i, d.Sets[i].Replicas-harmlessReplicas(d.Sets[i]), "old revision, unavailable first")
	}
	for _, i := range old {
		lower(i, d.Sets[i].Replicas, "old revision")
	}
	switch {
	case shrunk:
		return true, ""
	case d.mayDelete() <= 0:
		return false, d.deletionLimitReached()
	}
	return false, fmt.Sprintf("%s available; while machines of an old revision are deleted (%d left), %s",
		machinesAre(d.sum(guaranteedAvailable)), replicas, d.mustStayAvailable())
}

func (d *draft) deletionLimitReached() string {
	return fmt.Sprintf("%s being deleted, and the limit is %d at a time (maxSurge %d + maxUnavailable %d)",
		machinesAre(d.deletionsInProgress()), d.MaxSurge+d.MaxUnavailable, d.MaxSurge, d.MaxUnavailable)
}

func (d *draft) deletionsInProgress() int32 {
	everywhere := func(int) bool { return true }
	return max(0, d.sum(func(s Set) int32 { return s.Deleting + pendingDeletions(s) })-d.blockedDeletions(everywhere))
}

func (d *draft) mayDelete() int32 {
	if d.Replicas == 0 {
		return math.MaxInt32 / 2
	}
	return max(0, d.MaxSurge+d.MaxUnavailable-d.deletionsInProgress())
}
