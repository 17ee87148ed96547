package machinedeployment

import (
	"fmt"

	"machinist.dev/machinist/internal/platform/wording"
)

// replacesMarked reports whether the next step is part of the replacement of machines with the annotation
// machinist.dev/replace.
func (d *draft) replacesMarked() bool {
	current := d.Sets[d.Current]
	return current.MarkedForReplacement > 0 && !current.BeingDeleted && d.Replicas > 0 && d.outdated() == 0 && !d.resized()
}

// resized reports whether the deployment's replicas have changed since the sets were sized.
func (d *draft) resized() bool { return d.SizedFor != Unknown && d.SizedFor != d.Replicas }

// replacementSurge returns how many machines the current set has in addition to replicas because of replacements.
// The result is the largest of three numbers: the number of additional machines before the plan, the number after
// the plan, and the number of replaced machines that the set has not deleted yet.
func (d *draft) replacementSurge(before State) int32 {
	if d.Current < 0 || d.Current >= len(before.Sets) {
		return 0
	}
	set := before.Sets[d.Current]
	pending := min(set.ReplacementSurge, set.Live-set.Replicas)
	return max(0, pending, set.Replicas-before.keptSizedFor(), d.Sets[d.Current].Replicas-d.Replicas)
}

// replaceMarked plans the next step of the replacement of marked machines of the wanted revision. The new machines
// have the same revision. Machines are marked by an administrator, or because they are too old. The replacement
// begins when no machine of an old revision is left. If maxSurge is greater than 0, the replacements are created
// first. The set deletes marked machines as soon as enough other machines are available. If maxSurge is 0, the set
// deletes marked machines before their replacements are created, but never more at a time than maxUnavailable
// permits. The strategy OnDelete permits neither a surge nor unavailable machines, so an administrator must delete
// the marked machines. The result is the value of Plan.Waiting.
func (d *draft) replaceMarked() (waiting string) {
	current := &d.Sets[d.Current]
	pending := pendingDeletions(*current)
	switch {
	case d.MaxSurge+d.MaxUnavailable == 0:
		return fmt.Sprintf("with strategy OnDelete, you must delete %s marked for replacement",
			wording.Count(current.MarkedForReplacement, "machine"))
	case pending > 0:
		return fmt.Sprintf("set %s has yet to delete %s", current.Name, wording.Count(pending, "machine"))
	case current.Replicas < d.Replicas:
		d.grow(d.Current, d.Replicas, "replacements")
		return waitingForAvailable(*current, d.Replicas)
	case current.Replicas > d.Replicas && d.MaxSurge > 0:
		// The set can delete unavailable marked machines, because this does not reduce the number of available
		// machines.
		deletable := current.Available + current.UnavailableMarkedForReplacement - d.Replicas
		n := min(current.Replicas-d.Replicas, deletable, d.mayDelete())
		if n > 0 && d.shrink(d.Current, current.Replicas-n, "replaced machines") > 0 {
			return ""
		}
		return waitingForAvailable(*current, current.Replicas)
	case d.mayDelete() <= 0:
		return d.deletionLimitReached()
	case d.MaxSurge > 0:
		if d.grow(d.Current, d.Replicas+min(current.MarkedForReplacement, d.MaxSurge), "replacements") > 0 {
			return ""
		}
	case d.MaxUnavailable > 0:
		// If too few machines were available, the set would not delete the marked machine. It would delete another
		// machine that is not available, and then also each replacement of that machine.
		spare := max(0, d.sum(guaranteedAvailable)-d.minAvailable())
		n := min(current.MarkedForReplacement, current.UnavailableMarkedForReplacement+spare, d.mayDelete())
		if n > 0 && d.shrink(d.Current, d.Replicas-n, "replaced machines") > 0 {
			return ""
		}
	}
	return fmt.Sprintf("%s available; while a machine is replaced, %s", machinesAre(d.sum(guaranteedAvailable)),
		d.mustStayAvailable())
}
