package machinedeployment

import (
	"fmt"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
)

// Role describes which machines a set hands over to another set, or from which set it receives machines.
type Role struct {
	// MoveTo is the name of the set to which this set hands machines over, or "". Moves limits the number of machines
	// that are handed over. After a cancellation, the limit is 0.
	MoveTo string
	Moves  int32
	// BySelection is true if only selected machines are handed over. ByClass is true if only machines whose class remains
	// are handed over.
	BySelection, ByClass bool
	// ReceiveFrom is the name of the set that hands machines over to this set. It may be empty.
	ReceiveFrom string
}

// A hand-over has three steps. Each step is one write, and the deployment plans the next step after it has seen the
// result:
//
//  1. The deployment adds the annotation receive-from to the set of the wanted revision. While a set has the annotation
//     receive-from, it deletes no machines.
//  2. One patch lowers the replicas of an old set and adds the annotation move-to. While a set has the annotation
//     move-to, it deletes no machines. The controller of the old set hands the machines over one by one.
//  3. The deployment raises the replicas of the receiving set by the number of received machines. After the last
//     machine, the deployment removes the annotation move-to from the old set.
//
// The deployment plans nothing else during these steps, which take only moments because no step waits for an update.
//
// If an administrator deselects the machines, the old set cannot hand them over. The deployment then cancels the
// hand-over. Until the old set has observed the cancellation, its replicas must not be raised, because it could still
// hand over a machine.

func (d *draft) handingOver() bool {
	for i, set := range d.Sets {
		if d.roles[i].MoveTo != "" && !set.BeingDeleted {
			return true
		}
	}
	return false
}

// finishHandOver plans the third step of hand-overs, or the cancellation. It returns the value of Plan.WaitMessage.
func (d *draft) finishHandOver() (waiting string) {
	for i := range d.Sets {
		set := &d.Sets[i]
		set.Role = d.roles[i]
		if set.BeingDeleted || set.MoveTo == "" {
			continue
		}
		left, to := set.Live-set.Replicas, d.indexOf(set.MoveTo)
		switch {
		case to < 0 || d.Sets[to].BeingDeleted:
			set.clearOrder()
			if left > 0 {
				d.setToLive(i, "no set to receive its machines")
			}
		case set.Moves == 0 && set.IsUnobserved:
			waiting = orderNotObserved(*set)
		case set.Moves == 0:
			set.clearOrder()
			d.setToLive(i, "machines not handed over")
		case left <= 0:
			set.clearOrder()
		case set.BySelection && set.Selected < left:
			set.Moves = 0
			d.setToLive(i, "machines no longer selected")
			waiting = orderNotObserved(*set)
		case set.ByClass && set.Movable < left:
			set.Moves = 0
			d.setToLive(i, "machines of another class")
			waiting = orderNotObserved(*set)
		case !set.ByClass && set.Denied >= set.Live:
			set.Moves = 0
			d.setToLive(i, "machines held back by budgets")
			waiting = orderNotObserved(*set)
		default:
			waiting = fmt.Sprintf("set %s has yet to hand over %s to set %s", set.Name, wording.Count(left, "machine"),
				d.Sets[to].Name)
		}
	}
	for i := range d.Sets {
		if from := d.sourceOf(i); from != "" {
			d.Sets[i].ReceiveFrom = from // The annotation may have been removed by hand.
		}
	}
	d.countReceived()
	return waiting
}

// orderNotObserved returns the value of Plan.WaitMessage for a set that has not observed that its hand-over was
// canceled.
func orderNotObserved(s Set) string {
	return fmt.Sprintf("set %s has not observed yet that its hand-over of machines was canceled", s.Name)
}

func (s *Set) clearOrder() { s.MoveTo, s.Moves, s.BySelection, s.ByClass = "", 0, false, false }

func (d *draft) sourceOf(i int) string {
	for _, set := range d.Sets {
		if set.MoveTo == d.Sets[i].Name {
			return set.Name
		}
	}
	return ""
}

// countReceived raises the replicas of each set by the number of machines that it has received. It reports whether any
// set has received machines.
func (d *draft) countReceived() (any bool) {
	for i, set := range d.Sets {
		if d.roles[i].ReceiveFrom != "" && !set.BeingDeleted && set.Live > set.Replicas {
			d.Sets[i].Role = d.roles[i]
			d.setToLive(i, "received machines")
			any = true
		}
	}
	return any
}

// setToLive sets replicas to the number of live machines. The change neither creates nor deletes machines, so it cannot
// violate maxSurge or maxUnavailable.
func (d *draft) setToLive(i int, why string) {
	d.Sets[i].Replicas = d.Sets[i].Live
	d.addReason(i, why)
}

func (d *draft) indexOf(name string) int {
	for i, set := range d.Sets {
		if set.Name == name {
			return i
		}
	}
	return -1
}

// shrinkOldToLive lowers the replicas of old sets that have lost machines, so that the current set replaces these
// machines.
func (d *draft) shrinkOldToLive() {
	for i, set := range d.Sets {
		if d.isOld(i) && set.Live < set.Replicas {
			d.shrink(i, set.Live, "machines are gone")
		}
	}
}

// growCurrentBesideOld raises the current set's replicas by the number of missing machines. It returns the replicas of
// the old sets.
func (d *draft) growCurrentBesideOld() (oldReplicas int32) {
	for i, set := range d.Sets {
		if d.isOld(i) {
			oldReplicas += set.Replicas
		}
	}
	d.grow(d.CurrentIndex, d.Replicas-oldReplicas, "new revision")
	return oldReplicas
}

// planInPlace plans the next step of a rollout in place. The result is the value of Plan.WaitMessage.
func (d *draft) planInPlace() string {
	oldReplicas := d.growCurrentBesideOld()
	current := &d.Sets[d.CurrentIndex]
	from := d.source()
	switch pending := d.sum(pendingDeletions); {
	case from < 0 && d.Manual && oldReplicas > 0:
		return d.waitForSelection(oldReplicas)
	case from < 0 && current.Available < d.Replicas:
		return waitingForUpdated(*current, d.Replicas)
	case from < 0:
		return ""
	case pending > 0:
		// Finish deletions first, because sets delete nothing during a hand-over.
		return fmt.Sprintf("%s must be deleted before others are handed over", wording.Count(pending, "machine"))
	}
	if !d.mayReceive(from) {
		return d.whyNotReceiving(from)
	}
	source := &d.Sets[from]
	n, blockedBy := d.mayHandOver(from)
	if n <= 0 {
		return blockedBy
	}
	source.MaxReplicas = max(source.MaxReplicas, source.Replicas)
	source.Replicas -= n
	source.MoveTo, source.Moves, source.BySelection = current.Name, n, d.Manual
	d.addReason(from, "handed over to "+current.Name)
	return ""
}

// mayReceive prepares the current set to receive machines of set from, and reports whether it is ready. The receiving
// set must first create its missing machines. Otherwise, the set would create these machines during the hand-over, and
// have too many machines afterwards.
func (d *draft) mayReceive(from int) bool {
	current, source := &d.Sets[d.CurrentIndex], d.Sets[from].Name
	current.ReceiveFrom = source
	return d.roles[d.CurrentIndex].ReceiveFrom == source && current.Replicas <= current.Live
}

func (d *draft) whyNotReceiving(from int) string {
	current, source := d.Sets[d.CurrentIndex], d.Sets[from].Name
	if d.roles[d.CurrentIndex].ReceiveFrom != source {
		return fmt.Sprintf("set %s is not ready yet to receive machines of set %s", current.Name, source)
	}
	return fmt.Sprintf("set %s must create %s before it receives others", current.Name,
		wording.Count(current.Replicas-current.Live, "machine"))
}

// waitingForUpdated returns a message about the new machines that are not up to date and available yet.
func waitingForUpdated(current Set, replicas int32) string {
	return fmt.Sprintf("%d of %d machines of the new revision are up to date and available", current.Available, replicas)
}

// waitForSelection returns the value of Plan.WaitMessage if the rollout waits for an administrator to select old
// machines. If updates are in progress, the text reports them first, because an administrator may select the next
// machines only weeks later.
func (d *draft) waitForSelection(oldReplicas int32) string {
	current := d.Sets[d.CurrentIndex]
	selection := fmt.Sprintf("to update machines of an old revision (%d left), set the label %s on them", oldReplicas,
		v1beta1.LabelSelectedForUpdate)
	if wanted := d.Replicas - oldReplicas; current.Available < wanted {
		return fmt.Sprintf("%s; %s", waitingForUpdated(current, wanted), selection)
	}
	d.awaitsSelection = true
	return selection
}

// mayHandOver returns how many machines of an old set may be handed over now, or the reason why none may.
//
// Machines that are not Ready go first, because their update interrupts nothing. These machines still count as if
// they were Ready, and received machines do not count until their update is complete. Otherwise an outage of all
// machines would lead to an update of all machines at once.
func (d *draft) mayHandOver(from int) (n int32, blockedBy string) {
	source, current := d.Sets[from], d.Sets[d.CurrentIndex]
	var replicas int32
	for i, set := range d.Sets {
		if d.isOld(i) && !set.BeingDeleted {
			replicas += set.Replicas
		}
	}
	inReserve := replicas + guaranteedAvailable(current) - d.minAvailable()
	if inReserve <= 0 {
		return 0, fmt.Sprintf("%s; while machines of an old revision are updated (%d left), at most %d may be unavailable",
			waitingForUpdated(current, current.Replicas), replicas, d.MaxUnavailable)
	}
	all, idle := d.movable(source)
	n = min(all, inReserve, idle+max(0, d.sum(guaranteedAvailable)-d.minAvailable()))
	if n <= 0 {
		return 0, fmt.Sprintf("%s available; while machines of an old revision are updated (%d left), %s",
			machinesAre(d.sum(guaranteedAvailable)), replicas, d.mustStayAvailable())
	}
	return n, ""
}

// movable returns how many machines an old set may hand over now under the budgets and the selection. idle counts the
// machines among them that are not Ready or not up to date. These machines are handed over first.
func (d *draft) movable(s Set) (all, idle int32) {
	all, idle = s.Live, s.Live-s.Ready+s.Updating
	if d.Manual {
		all, idle = s.Selected, s.SelectedIdle
	}
	all = min(all, s.Live-s.Denied)
	return all, min(idle, all)
}

// source returns the index of the old set that hands machines over next, or -1. The method prefers a set with idle
// machines, then the current source, then the oldest set.
func (d *draft) source() int {
	best, bestIdle := -1, false
	for i, set := range d.Sets {
		all, n := d.movable(set)
		if !d.isOld(i) || set.BeingDeleted || all == 0 {
			continue
		}
		idle := n > 0
		if best < 0 || idle && !bestIdle || idle == bestIdle && set.Name == d.roles[d.CurrentIndex].ReceiveFrom {
			best, bestIdle = i, idle
		}
	}
	return best
}

func (s State) deniedInPlace() bool {
	allowed := s
	allowed.DisruptionDenied = ""
	return s.updatesInPlace() && !s.mayRollOut() && allowed.mayRollOut()
}

func (s State) updatesInPlace() bool { return s.Strategy == v1beta1.StrategyInPlace }
