package machinedeployment

import (
	"fmt"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
)

// Role is a set's role in a hand-over.
type Role struct {
	// MoveTo names the set that receives at most Moves machines of this one; it may be empty. Moves is 0 in an order
	// that was taken back.
	MoveTo string
	Moves  int32
	// BySelection says that only selected machines go.
	BySelection bool
	// ReceiveFrom names the set whose machines come to this one; it may be empty.
	ReceiveFrom string
}

// A hand-over has three steps. Each is one write, and the deployment plans the next step only after it has seen the
// result:
//
//  1. The set of the wanted revision gets the annotation receive-from. From then on it deletes nothing.
//  2. One patch lowers the replicas of an old set and adds the annotation move-to. The old set deletes nothing
//     either; its controller hands the machines over one by one.
//  3. The deployment counts the machines that have arrived: it raises the replicas of the receiving set. When no
//     machine is left to go, it removes the order from the old set.
//
// Until the third step is done the deployment plans nothing else. That takes moments, because no step waits for an
// update.
//
// People who select machines may deselect them, so that an old set cannot carry out its order. Then the deployment
// takes the order back: the set's controller must have observed that before the set may create machines again,
// because otherwise it would replace a machine that it still hands over.

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
				d.setToLive(i, "no set receives its machines")
			}
		case set.Moves == 0 && set.Behind:
			waiting = fmt.Sprintf("set %s to observe that it hands over no more machines", set.Name)
		case set.Moves == 0:
			set.clearOrder()
			d.setToLive(i, "what it did not hand over")
		case left <= 0:
			set.clearOrder()
		case set.BySelection && set.Selected < left:
			set.Moves = 0
			d.setToLive(i, "not selected any more")
			waiting = fmt.Sprintf("set %s to observe that it hands over no more machines", set.Name)
		case set.Denied >= set.Live:
			set.Moves = 0
			d.setToLive(i, "denied by budgets")
			waiting = fmt.Sprintf("set %s to observe that it hands over no more machines", set.Name)
		default:
			waiting = fmt.Sprintf("%s of set %s to be handed over to set %s", wording.Count(left, "machine"), set.Name,
				d.Sets[to].Name)
		}
	}
	for i := range d.Sets {
		if from := d.sourceOf(i); from != "" {
			d.Sets[i].ReceiveFrom = from // a person may have removed it
		}
	}
	d.countReceived()
	return waiting
}

// clearOrder removes a set's order.
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

// countReceived raises the replicas of sets by the machines that were handed over to them, and reports whether there
// were any.
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

// setToLive sets the replicas of a set to its number of live machines. That creates and deletes none, so no bound
// applies.
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

// giveUpLost lowers the replicas of old sets that have lost machines, so that the wanted revision replaces them.
func (d *draft) giveUpLost() {
	for i, set := range d.Sets {
		if d.old(i) && set.Live < set.Replicas {
			d.shrink(i, set.Live, "its machine is gone")
		}
	}
}

// growBesideOld has the set of the wanted revision make the machines that are missing beside those of old ones, and
// returns how many these are.
func (d *draft) growBesideOld() (oldReplicas int32) {
	for i, set := range d.Sets {
		if d.old(i) {
			oldReplicas += set.Replicas
		}
	}
	d.grow(d.Current, d.Replicas-oldReplicas, "new revision")
	return oldReplicas
}

// inPlace plans the next step of a rollout that hands machines over to the wanted revision, where they are updated. It
// returns what the rollout waits for.
func (d *draft) inPlace() string {
	oldReplicas := d.growBesideOld()
	current := &d.Sets[d.Current]
	from := d.source()
	switch leaving := d.sum(pendingDeletions); {
	case from < 0 && d.Manual && oldReplicas > 0:
		return d.awaitSelection(oldReplicas)
	case from < 0 && current.Available < d.Replicas:
		return fmt.Sprintf("%d of %s of the new revision up to date and available", current.Available,
			wording.Count(d.Replicas, "machine"))
	case from < 0:
		return ""
	case leaving > 0:
		// Sets with a role in a hand-over delete nothing, so deletions come first.
		return fmt.Sprintf("%s to be deleted before any is handed over", wording.Count(leaving, "machine"))
	}
	source := &d.Sets[from]
	current.ReceiveFrom = source.Name
	if d.roles[d.Current].ReceiveFrom != source.Name {
		return fmt.Sprintf("set %s to be ready for machines of set %s", current.Name, source.Name)
	}
	if missing := current.Replicas - current.Live; missing > 0 {
		// Its controller may be about to create machines: together with those handed over there would be too many.
		return fmt.Sprintf("%s of set %s to be made before any is handed over", wording.Count(missing, "machine"),
			current.Name)
	}
	n, blockedBy := d.mayMove(from)
	if n <= 0 {
		return blockedBy
	}
	source.Most = max(source.Most, source.Replicas)
	source.Replicas -= n
	source.MoveTo, source.Moves, source.BySelection = current.Name, n, d.Manual
	d.addReason(from, "handed over to "+current.Name)
	return ""
}

// awaitSelection says what the rollout waits for while no machine of an old set is selected. That may take weeks;
// updates in progress come first.
func (d *draft) awaitSelection(oldReplicas int32) string {
	current := d.Sets[d.Current]
	selection := fmt.Sprintf("the label %s on some of %s of an old revision", v1beta1.LabelSelectedForUpdate,
		wording.Count(oldReplicas, "machine"))
	if wanted := d.Replicas - oldReplicas; current.Available < wanted {
		return fmt.Sprintf("%d of %s of the new revision up to date and available, and %s", current.Available,
			wording.Count(wanted, "machine"), selection)
	}
	d.forPeople = true
	return selection
}

// mayMove returns how many machines of an old set may be updated now, or else what prevents it.
//
// Machines that are not Ready are handed over first, and cost nothing. But as in a rolling update they count as if
// they came back, and machines that were handed over count only when they are up to date: otherwise an outage that
// makes all machines unavailable would update all of them at once.
func (d *draft) mayMove(from int) (n int32, blockedBy string) {
	source, current := d.Sets[from], d.Sets[d.Current]
	var replicas int32
	for i, set := range d.Sets {
		if d.old(i) && !set.Leaving {
			replicas += set.Replicas
		}
	}
	inReserve := replicas + guaranteedAvailable(current) - d.minAvailable()
	if inReserve <= 0 {
		return 0,
			fmt.Sprintf("%d of %s of the new revision up to date and available, at most %d may be otherwise, before any of %s of an old revision is updated",
				current.Available, wording.Count(current.Replicas, "machine"), d.MaxUnavailable, wording.Count(replicas, "machine"))
	}
	all, idle := d.movable(source)
	n = min(all, inReserve, idle+max(0, d.sum(guaranteedAvailable)-d.minAvailable()))
	if n <= 0 {
		return 0,
			fmt.Sprintf("%d available, and at least %d must be (replicas %d − maxUnavailable %d) before any of %s of an old revision is updated",
				d.sum(guaranteedAvailable), d.minAvailable(), d.Replicas, d.MaxUnavailable, wording.Count(replicas, "machine"))
	}
	return n, ""
}

// movable returns how many machines of an old set people and budgets allow to be handed over, and how many of them are
// not Ready or not up to date: these go first.
func (d *draft) movable(s Set) (all, idle int32) {
	all, idle = s.Live, s.Live-s.Ready+s.Updating
	if d.Manual {
		all, idle = s.Selected, s.SelectedIdle
	}
	all = min(all, s.Live-s.Denied)
	return all, min(idle, all)
}

// source returns the old set to hand machines over from: one that has idle machines, or else the present source, or
// else the oldest; -1 if there is none.
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

// deniedInPlace reports whether budgets, and nothing else, keep old machines from being updated in place.
func (s State) deniedInPlace() bool {
	allowed := s
	allowed.DisruptionDenied = ""
	return s.updatesInPlace() && !s.rolls() && allowed.rolls()
}

// updatesInPlace reports whether old machines are updated in place.
func (s State) updatesInPlace() bool { return s.Strategy == v1beta1.StrategyInPlace }
