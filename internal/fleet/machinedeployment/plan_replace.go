package machinedeployment

import (
	"fmt"

	"machinist.dev/machinist/internal/platform/wording"
)

// replacesMarked reports whether the next step replaces machines with the annotation machinist.dev/replace.
func (d *draft) replacesMarked() bool {
	current := d.Sets[d.CurrentIndex]
	return current.MarkedForReplacement > 0 && !current.BeingDeleted && d.Replicas > 0 &&
		d.outdatedMachines() == 0 && !d.resized()
}

func (d *draft) resized() bool { return d.SizedFor != UnknownSize && d.SizedFor != d.Replicas }

func (d *draft) replacementSurge(before State) int32 {
	if d.CurrentIndex < 0 || d.CurrentIndex >= len(before.Sets) {
		return 0
	}
	set := before.Sets[d.CurrentIndex]
	pending := min(set.ReplacementSurge, set.Live-set.Replicas)
	return max(0, pending, set.Replicas-before.keptSizedFor(), d.Sets[d.CurrentIndex].Replicas-d.Replicas)
}

// replaceMarked plans the next step to replace marked machines of the current revision, once no old revision is left.
// The result is the value of Plan.WaitingMachines.
//
// With maxSurge, replacements are created first, and the set deletes a marked machine when enough others are available.
// Without maxSurge, the set deletes first, at most maxUnavailable machines at a time. With strategy OnDelete, an
// administrator must delete the marked machines.
func (d *draft) replaceMarked() (waiting string) {
	current := &d.Sets[d.CurrentIndex]
	pending := pendingDeletions(*current)
	switch {
	case d.MaxSurge+d.MaxUnavailable == 0:
		return fmt.Sprintf("with strategy OnDelete, you must delete %s marked for replacement",
			wording.Count(current.MarkedForReplacement, "machine"))
	case pending > 0:
		return fmt.Sprintf("set %s has yet to delete %s", current.Name, wording.Count(pending, "machine"))
	case current.Replicas < d.Replicas:
		d.grow(d.CurrentIndex, d.Replicas, "replacements")
		return waitingForAvailable(*current, d.Replicas)
	case current.Replicas > d.Replicas && d.MaxSurge > 0:
		// Deleting unavailable marked machines does not lower the number of available machines.
		deletable := current.Available + current.UnavailableMarkedForReplacement - d.Replicas
		n := min(current.Replicas-d.Replicas, deletable, d.mayDelete())
		if n > 0 && d.shrink(d.CurrentIndex, current.Replicas-n, "replaced machines") > 0 {
			return ""
		}
		return waitingForAvailable(*current, current.Replicas)
	case d.mayDelete() <= 0:
		return d.deletionLimitReached()
	case d.MaxSurge > 0:
		if d.grow(d.CurrentIndex, d.Replicas+min(current.MarkedForReplacement, d.MaxSurge), "replacements") > 0 {
			return ""
		}
	case d.MaxUnavailable > 0:
		// Shrink the set only if enough machines are available. Otherwise the set would not delete the marked machine
		// but an unavailable one. The set would then also delete each new machine that is not available yet.
		spare := max(0, d.sum(guaranteedAvailable)-d.minAvailable())
		n := min(current.MarkedForReplacement, current.UnavailableMarkedForReplacement+spare, d.mayDelete())
		if n > 0 && d.shrink(d.CurrentIndex, d.Replicas-n, "replaced machines") > 0 {
			return ""
		}
	}
	return fmt.Sprintf("%s available; while a machine is replaced, %s", machinesAre(d.sum(guaranteedAvailable)),
		d.mustStayAvailable())
}
