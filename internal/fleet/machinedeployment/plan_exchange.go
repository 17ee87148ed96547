package machinedeployment

import (
	"fmt"

	"machinist.dev/machinist/internal/platform/wording"
)

// exchanges reports whether the next step is one of exchange.
func (d *draft) exchanges() bool {
	current := d.Sets[d.Current]
	return current.Exchanged > 0 && !current.Leaving && d.Replicas > 0 && d.outdated() == 0 && !d.resized()
}

// resized reports whether people have changed replicas since the sets were sized.
func (d *draft) resized() bool { return d.SizedFor != Unknown && d.SizedFor != d.Replicas }

// exchangeSurge returns how many machines the current set has beyond replicas because of an exchange: before the plan,
// after it, or because those that were ordered to go have not gone yet.
func (d *draft) exchangeSurge(before State) int32 {
	if d.Current < 0 || d.Current >= len(before.Sets) {
		return 0
	}
	set := before.Sets[d.Current]
	leaving := min(set.ExchangeSurge, set.Live-set.Replicas)
	return max(0, leaving, set.Replicas-before.sizedForStill(), d.Sets[d.Current].Replicas-d.Replicas)
}

// exchange plans the next step of replacing machines of the wanted revision by others of it, because of their age or
// because somebody asked for that. It begins when no machine of another revision is left. As far as maxSurge allows,
// the replacements are made first, and the set deletes the machines to be exchanged when as many others are available;
// with no surge they are deleted first, within maxUnavailable. It returns what it waits for.
//
// With strategy OnDelete, which has neither, people delete machines.
func (d *draft) exchange() (waiting string) {
	current := &d.Sets[d.Current]
	leaving := pendingDeletions(*current)
	switch {
	case d.MaxSurge+d.MaxUnavailable == 0:
		return fmt.Sprintf("someone has to delete %s that must be exchanged", wording.Count(current.Exchanged, "machine"))
	case leaving > 0:
		return fmt.Sprintf("%s to be deleted, to be exchanged", wording.Count(leaving, "machine"))
	case current.Replicas < d.Replicas:
		d.grow(d.Current, d.Replicas, "in exchange")
		return waitingForAvailable(*current, d.Replicas)
	case current.Replicas > d.Replicas && d.MaxSurge > 0:
		// Deleting a machine that is not available costs none that is.
		n := min(current.Replicas-d.Replicas, current.Available+current.ExchangedUnavailable-d.Replicas, d.mayDelete())
		if n > 0 && d.shrink(d.Current, current.Replicas-n, "exchanged") > 0 {
			return ""
		}
		return waitingForAvailable(*current, current.Replicas)
	case d.mayDelete() <= 0:
		return fmt.Sprintf("%s being deleted, at most %d may be at a time (maxSurge %d + maxUnavailable %d)",
			wording.Count(d.dying(), "machine"), d.MaxSurge+d.MaxUnavailable, d.MaxSurge, d.MaxUnavailable)
	case d.MaxSurge > 0:
		if d.grow(d.Current, d.Replicas+min(current.Exchanged, d.MaxSurge), "in exchange") > 0 {
			return ""
		}
	case d.MaxUnavailable > 0:
		// If too few machines are available to delete one that must be replaced, the set would delete another one that is not
		// available, and would do so with each of its successors.
		spare := max(0, d.sum(guaranteedAvailable)-d.minAvailable())
		n := min(current.Exchanged, current.ExchangedUnavailable+spare, d.mayDelete())
		if n > 0 && d.shrink(d.Current, d.Replicas-n, "exchanged") > 0 {
			return ""
		}
	}
	return fmt.Sprintf("%d available, and at least %d must be (replicas %d − maxUnavailable %d) before a machine is exchanged",
		d.sum(guaranteedAvailable), d.minAvailable(), d.Replicas, d.MaxUnavailable)
}
