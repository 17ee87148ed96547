package machinedeployment

import (
	"fmt"
	"slices"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/wording"
)

// A change of the classes in spec.placement creates a new revision. If nothing else of the revision changed, machines
// whose class remains need no replacement. Before the rollout replaces the others, the old sets hand over the remaining
// machines with the steps of plan_inplace.go. The hand-over interrupts no pods, because the instances do not change.

// countKept returns how many live machines of an old set may stay as they are in the wanted revision. rolloutAfter is
// the time before which sets must be replaced, or zero.
func countKept(d *v1beta1.MachineDeployment, set *v1beta1.MachineSet, machines []*v1beta1.Machine,
	rolloutAfter time.Time) int32 {
	if !differsOnlyInClasses(TemplateOf(d), TemplateOfSet(set)) || !newerThan(set, rolloutAfter) {
		return 0
	}
	return countOfClasses(machines, classNames(TemplateOf(d)))
}

// countOfClasses returns the number of live machines that have one of the classes. A failed machine does not count: in
// the wanted revision, it would count as a failure of this revision.
func countOfClasses(machines []*v1beta1.Machine, classes []string) (n int32) {
	for _, m := range machines {
		if machinestate.IsLive(m) && !machinestate.HasFailed(m) && m.Spec.ClassRef != nil &&
			slices.Contains(classes, m.Spec.ClassRef.Name) {
			n++
		}
	}
	return n
}

// differsOnlyInClasses reports whether both templates name classes, at least one of them in a placement, and only these
// classes make the revisions differ.
func differsOnlyInClasses(a, b Template) bool {
	x, y := rolloutFieldsOf(a), rolloutFieldsOf(b)
	if x == y || x.Class+x.Classes == "" || y.Class+y.Classes == "" || x.Classes+y.Classes == "" {
		return false
	}
	x.Class, x.Classes, y.Class, y.Classes = "", "", "", ""
	return x == y
}

// classNames returns the classes of a template's machines.
func classNames(t Template) []string {
	if t.Spec.ClassRef != nil {
		return []string{t.Spec.ClassRef.Name}
	}
	return t.Placement.ClassNames()
}

// keptSource returns the index of the old set that hands over its remaining machines next, or -1. It prefers the
// current source. If sets must keep surplus machines because the deployment needs them, the rollout must first create
// others.
func (d *draft) keptSource() int {
	best := -1
	if pending := d.sum(pendingDeletions); pending > 0 && pending == d.blockedDeletions(func(int) bool { return true }) {
		return best
	}
	for i, set := range d.Sets {
		if !d.isOld(i) || set.BeingDeleted || d.mayHandOverKept(i) == 0 {
			continue
		}
		if best < 0 || set.Name == d.roles[d.CurrentIndex].ReceiveFrom {
			best = i
		}
	}
	return best
}

// mayHandOverKept returns how many of its remaining machines an old set may hand over now. A partition keeps some of
// them. Before the end of pauseAfter, the first machines must be new ones, because only new machines show whether the
// classes of the new revision work.
func (d *draft) mayHandOverKept(i int) int32 {
	set := d.Sets[i]
	switch {
	case !d.isStopping():
		return set.Kept
	case d.PauseAfter > 0:
		return 0
	}
	return max(0, min(set.Kept, set.Replicas-d.staying()[i], d.wantedOfNewest()-d.Sets[d.CurrentIndex].Replicas))
}

// handOverKept plans the next step to hand over the remaining machines of an old set. The result is the value of
// Plan.WaitMessage.
func (d *draft) handOverKept(from int) string {
	source, current := &d.Sets[from], &d.Sets[d.CurrentIndex]
	if pending := pendingDeletions(*source) + pendingDeletions(*current); pending > 0 {
		// Sets delete nothing during a hand-over.
		return fmt.Sprintf("%s must be deleted before others are handed over", wording.Count(pending, "machine"))
	}
	if !d.mayReceive(from) {
		waiting := d.whyNotReceiving(from)
		if d.roles[d.CurrentIndex].ReceiveFrom == source.Name {
			// The set may be unable to create its missing machines. The rollout creates them after the hand-over.
			d.setToLive(d.CurrentIndex, "machines are received first")
		}
		return waiting
	}
	source.MaxReplicas = max(source.MaxReplicas, source.Replicas)
	n := d.mayHandOverKept(from)
	source.Replicas -= min(n, source.Replicas)
	source.MoveTo, source.Moves, source.ByClass = current.Name, n, true
	d.addReason(from, "class remains, handed over to "+current.Name)
	return ""
}
