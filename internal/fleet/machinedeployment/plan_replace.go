package machinedeployment

import (
	"fmt"

	"machinist.dev/machinist/internal/platform/wording"
)

// replacesMarked reports whether the next step replaces machines with the annotation machinist.dev/replace.
func (d *draft) replacesMarked() bool {
	current := d.Sets[d.Current]
	return current.MarkedForReplacement > 0 && !current.BeingDeleted && d.Replicas > 0 && d.outdated() == 0 && !d.resized()
}

// resized reports whether the deployment's replicas have changed since the sets were sized.
func (d *draft) resized() bool { return d.SizedFor != Unknown && d.SizedFor != d.Replicas }

// replacementSurge returns how many machines the current set has in addition to replicas because of replacements. The
// result is the largest of three numbers: the surplus before the plan, the surplus after the plan, and the number of
// replaced machines that the set has not deleted yet.
func (d *draft) replacementSurge(before State) int32 {
	if d.Current < 0 || d.Current >= len(before.Sets) {
		return 0
	}
	set := before.Sets[d.Current]
	pending := min(set.ReplacementSurge, set.Live-set.Replicas)
	return max(0, pending, set.Replicas-before.keptSizedFor(), d.Sets[d.Current].Replicas-d.Replicas)
}

// replaceMarked plans the next step of the replacement of marked machines of the wanted revision by new machines of the
// same revision. A machine is marked by an administrator, or because it is too old. The replacement begins when no
// machine of an old revision is left. With a surge, the replacements are created first. The set deletes marked machines
// when enough other machines are available. Without a surge, marked machines are deleted first, within maxUnavailable.
// The strategy OnDelete permits neither a surge nor unavailable machines, so an administrator must delete the marked
// machines. The result is the value of Plan.Waiting.
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
		// The set can delete unavailable marked machines without deleting an available machine.
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
		// If too few machines are available, the set would not delete the marked machine but another one that is not
		// available, and then each replacement of that machine.
		spare := max(0, d.sum(guaranteedAvailable)-d.minAvailable())
		n := min(current.MarkedForReplacement, current.UnavailableMarkedForReplacement+spare, d.mayDelete())
		if n > 0 && d.shrink(d.Current, d.Replicas-n, "replaced machines") > 0 {
			return ""
		}
	}
	return fmt.Sprintf("%s available; while a machine is replaced, %s", machinesAre(d.sum(guaranteedAvailable)),
		d.mustStayAvailable())
}
