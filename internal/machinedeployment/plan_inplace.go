package machinedeployment

import (
	"fmt"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/wording"
)

// Role is a set's part in a hand-over.
type Role struct {
	// MoveTo names the set that gets machines of this one, at most Moves of them; empty if none does. Moves is 0 in an
	// order that was taken back.
	MoveTo string
	Moves  int32
	// BySelection says that only machines go that people have selected.
	BySelection bool
	// ReceiveFrom names the set whose machines come to this one; empty if none do.
	ReceiveFrom string
}

// A hand-over has three steps, each of them one write, and each seen to be done before the next is planned:
//
//  1. The set of the wanted revision is made to receive. It deletes nothing from then on.
//  2. An old set is told to have fewer machines and where the difference goes. It deletes nothing either; its controller
//     gives the machines away one by one.
//  3. What has arrived is counted: the set that received it is told to have that many. When nothing is left to go, the old
//     set is relieved of its order.
//
// Until the third step is done nothing else is planned, whatever else is wanted: that takes moments, since nobody waits
// for an update in it.
//
// Where people select machines they may think better of it, and leave an old set with an order that it cannot carry out.
// Then the order is taken back: its controller must have heard that before it may have as many machines as it likes
// again, lest one that it still gives away is made once more.

// handingOver reports whether a set has an order to hand machines over.
func (d *draft) handingOver() bool {
	for i, set := range d.Sets {
		if d.roles[i].MoveTo != "" && !set.Leaving {
			return true
		}
	}
	return false
}

// finishHandOver plans the third step and returns what it waits for.
func (d *draft) finishHandOver() (waiting string) {
	for i := range d.Sets {
		set := &d.Sets[i]
		set.Role = d.roles[i]
		if set.Leaving || set.MoveTo == "" {
			continue
		}
		left, to := set.Live-set.Replicas, d.named(set.MoveTo)
		switch {
		case to < 0 || d.Sets[to].Leaving:
			set.clearOrder()
			if left > 0 {
				d.setToLive(i, "nobody takes its machines over")
			}
		case set.Moves == 0 && set.Behind:
			waiting = fmt.Sprintf("set %s to hear that it hands over no more machines", set.Name)
		case set.Moves == 0:
			set.clearOrder()
			d.setToLive(i, "what it did not hand over")
		case left <= 0:
			set.clearOrder()
		case set.BySelection && set.Selected < left:
			set.Moves = 0
			d.setToLive(i, "not selected any more")
			waiting = fmt.Sprintf("set %s to hear that it hands over no more machines", set.Name)
		default:
			waiting = fmt.Sprintf("%s of set %s to be handed over to set %s", wording.Count(left, "machine"), set.Name, d.Sets[to].Name)
		}
	}
	for i := range d.Sets {
		if from := d.sourceOf(i); from != "" {
			d.Sets[i].ReceiveFrom = from // somebody may have taken it off
		}
	}
	d.countReceived()
	return waiting
}

// relieve takes a set's order away.
func (s *Set) clearOrder() { s.MoveTo, s.Moves, s.BySelection = "", 0, false }

// sourceOf returns the set that has an order to hand machines over to set i.
func (d *draft) sourceOf(i int) string {
	for _, set := range d.Sets {
		if set.MoveTo == d.Sets[i].Name {
			return set.Name
		}
	}
	return ""
}

// countReceived tells sets to have the machines that were handed over to them, and reports whether there were any.
func (d *draft) countReceived() (any bool) {
	for i, set := range d.Sets {
		if d.roles[i].ReceiveFrom != "" && !set.Leaving && set.Live > set.Replicas {
			d.Sets[i].Role = d.roles[i]
			d.setToLive(i, "machines handed over")
			any = true
		}
	}
	return any
}

// keep tells a set to have the machines that it has. That adds none and removes none, so no bound is asked.
func (d *draft) setToLive(i int, why string) {
	d.Sets[i].Replicas = d.Sets[i].Live
	d.addReason(i, why)
}

func (d *draft) named(name string) int {
	for i, set := range d.Sets {
		if set.Name == name {
			return i
		}
	}
	return -1
}

// giveUpLost gives the places of machines that old sets have lost to the wanted revision.
func (d *draft) giveUpLost() {
	for i, set := range d.Sets {
		if d.old(i) && set.Live < set.Replicas {
			d.shrink(i, set.Live, "its machine is gone")
		}
	}
}

// inPlace plans the next step of a rollout that hands machines over to the wanted revision, where they are updated. It
// returns what the rollout waits for.
func (d *draft) inPlace() string {
	var oldReplicas int32
	for i, set := range d.Sets {
		if !d.old(i) {
			continue
		}
		oldReplicas += set.Replicas
	}
	d.grow(d.Current, d.Replicas-oldReplicas, "new revision")
	current := &d.Sets[d.Current]
	from := d.source()
	switch leaving := d.sum(pendingDeletions); {
	case from < 0 && d.Manual && oldReplicas > 0:
		return d.awaitSelection(oldReplicas)
	case from < 0 && current.Available < d.Replicas:
		return fmt.Sprintf("%d of %s of the new revision up to date and available", current.Available, wording.Count(d.Replicas, "machine"))
	case from < 0:
		return ""
	case leaving > 0:
		// Sets that take part in a hand-over delete nothing, so that comes first.
		return fmt.Sprintf("%s to be deleted before any is handed over", wording.Count(leaving, "machine"))
	}
	source := &d.Sets[from]
	current.ReceiveFrom = source.Name
	if d.roles[d.Current].ReceiveFrom != source.Name {
		return fmt.Sprintf("set %s to be ready for machines of set %s", current.Name, source.Name)
	}
	if missing := current.Replicas - current.Live; missing > 0 {
		// What is handed over must not take the place of what its controller is about to make.
		return fmt.Sprintf("%s of set %s to be made before any is handed over", wording.Count(missing, "machine"), current.Name)
	}
	n, hindrance := d.mayMove(from)
	if n <= 0 {
		return hindrance
	}
	source.Most = max(source.Most, source.Replicas)
	source.Replicas -= n
	source.MoveTo, source.Moves, source.BySelection = current.Name, n, d.Manual
	d.addReason(from, "handed over to "+current.Name)
	return ""
}

// awaitSelection says what is waited for while nobody has selected any of the machines that old sets keep. That may take
// weeks; what takes its time until then are updates under way.
func (d *draft) awaitSelection(oldReplicas int32) string {
	current := d.Sets[d.Current]
	selection := fmt.Sprintf("the label %s on some of %s of an old revision", v1beta1.LabelSelectedForUpdate, wording.Count(oldReplicas, "machine"))
	if wanted := d.Replicas - oldReplicas; current.Available < wanted {
		return fmt.Sprintf("%d of %s of the new revision up to date and available, and %s", current.Available, wording.Count(wanted, "machine"), selection)
	}
	d.forPeople = true
	return selection
}

// mayMove returns how many machines of an old set may be updated now, or else what keeps them from it.
//
// Machines that are of no use now are handed over first, and cost nothing. But as in a rolling update they count as if
// they came back, and what was handed over counts only once it is up to date: otherwise an outage that makes all machines
// unavailable would have all of them updated at once.
func (d *draft) mayMove(from int) (n int32, hindrance string) {
	source, current := d.Sets[from], d.Sets[d.Current]
	var replicas int32
	for i, set := range d.Sets {
		if d.old(i) && !set.Leaving {
			replicas += set.Replicas
		}
	}
	inReserve := replicas + guaranteedAvailable(current) - d.minAvailable()
	if inReserve <= 0 {
		return 0, fmt.Sprintf("%d of %s of the new revision up to date and available, at most %d may be otherwise, before any of %s of an old revision is updated",
			current.Available, wording.Count(current.Replicas, "machine"), d.MaxUnavailable, wording.Count(replicas, "machine"))
	}
	all, idle := d.movable(source)
	n = min(all, inReserve, idle+max(0, d.sum(guaranteedAvailable)-d.minAvailable()))
	if n <= 0 {
		return 0, fmt.Sprintf("%d available, and at least %d must be (replicas %d − maxUnavailable %d) before any of %s of an old revision is updated",
			d.sum(guaranteedAvailable), d.minAvailable(), d.Replicas, d.MaxUnavailable, wording.Count(replicas, "machine"))
	}
	return n, ""
}

// movable returns how many machines of an old set may be handed over as far as people are concerned, and how many of them
// are of no use now, or have an update that is not done: these go first.
func (d *draft) movable(s Set) (all, idle int32) {
	if d.Manual {
		return s.Selected, s.SelectedIdle
	}
	return s.Live, s.Live - s.Ready + s.Updating
}

// source returns the old set to hand machines over from: one that has idle machines, or else the one that was it
// before, or else the oldest; -1 if there is none.
func (d *draft) source() int {
	best, bestIdle := -1, false
	for i, set := range d.Sets {
		all, n := d.movable(set)
		if !d.old(i) || set.Leaving || all == 0 {
			continue
		}
		idle := n > 0
		if best < 0 || idle && !bestIdle || idle == bestIdle && set.Name == d.roles[d.Current].ReceiveFrom {
			best, bestIdle = i, idle
		}
	}
	return best
}

// updatesInPlace reports whether old machines are changed where they are.
func (s State) updatesInPlace() bool { return s.Strategy == v1beta1.StrategyInPlace }
