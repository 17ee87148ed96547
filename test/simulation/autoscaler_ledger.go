package simulation

import (
	"fmt"
	"maps"
	"math"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/invariants"
)

// ledger checks that the manager carries out the requests of the autoscaler. The manager may delete an available
// machine only if it has the delete mark, or if a rollout replaces it. If the size is lowered by more than the number
// of marked machines, the manager may choose the other victims. free is the number of unmarked machines that the
// manager may delete.
type ledger struct {
	world *World
	// dueMachines contains the marked machines that must be deleted, because the size was lowered for them. excused
	// contains the marked machines that may stay, because the size was raised again, or because another machine was
	// deleted instead.
	dueMachines map[uid]int64 // revision at which the size was lowered
	excused     map[uid]bool
	// free is the number of machines that the manager may choose itself. Each of them results from a lower size without
	// a machine that has the delete mark.
	free int
	// sizedFor is the last size of the deployment that the manager had seen when it created a set or changed its spec.
	// known is false before the first such write.
	sizedFor     int
	known        bool
	templates    []template
	lastLowering map[uid]lowering
	deleters     map[uid]string
}

type template struct {
	revision int64
	class    string
}

// lowering describes a write that reduces the replicas of a set. known is the revision of the deployment that the
// writer had read. The set must have seen all changes of machines up to the revision in the field machines before it
// chooses which machines to delete (rule victims-from-fresh-view). That is the revision of the last change of the
// deployment's spec, or the revision up to which the writer had seen the machines, whichever is later.
type lowering struct{ known, machines int64 }

func (l *ledger) begin(w *World) {
	*l = ledger{world: w, dueMachines: map[uid]int64{}, excused: map[uid]bool{}, lastLowering: map[uid]lowering{},
		deleters: map[uid]string{}}
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineDeployment")) {
		d := o.(*v1beta1.MachineDeployment)
		l.templates = append(l.templates, template{w.control.Revision(), d.Spec.Template.Spec.ClassRef.Name})
		l.sizedFor, l.known = invariants.Replicas(d.Spec.Replicas), true
	}
}

func (l *ledger) clone(w *World) ledger {
	f := *l
	f.world = w
	f.dueMachines, f.excused = maps.Clone(l.dueMachines), maps.Clone(l.excused)
	f.lastLowering, f.deleters = maps.Clone(l.lastLowering), maps.Clone(l.deleters)
	f.templates = slices.Clone(l.templates)
	return f
}

func (l *ledger) check(c apiserver.Change, victim client.ObjectKey) {
	l.resetFree()
	switch o := c.New.(type) {
	case *v1beta1.MachineDeployment:
		if before, ok := c.Old.(*v1beta1.MachineDeployment); ok {
			l.noteResize(c, before, o, victim)
		}
	case *v1beta1.MachineSet:
		l.noteSize(c, o)
		if before, ok := c.Old.(*v1beta1.MachineSet); ok && c.Actor == Manager &&
			invariants.Replicas(o.Spec.Replicas) < invariants.Replicas(before.Spec.Replicas) {
			seen := l.world.oracle.seenRevisions()
			known := seen["MachineDeployment"]
			l.lastLowering[o.UID] = lowering{known, max(seen["Machine"], l.specifiedAt(o.UID, known))}
		}
	case *v1beta1.Machine:
		before, known := l.world.oracle.machines[o.UID]
		if _, due := l.dueMachines[o.UID]; due && c.Actor == Autoscaler && known && !marked(o) {
			// The size was lowered for this machine. Then the autoscaler marked the machine again and removed the mark.
			delete(l.dueMachines, o.UID)
			l.free++
		}
		if known && before.DeletionTimestamp.IsZero() && (c.Type == watch.Deleted || !o.DeletionTimestamp.IsZero()) {
			l.deleters[o.UID] = c.Actor
			if c.Actor == Manager {
				l.checkDeletion(before)
			}
		}
	}
}

func (l *ledger) noteResize(c apiserver.Change, before, after *v1beta1.MachineDeployment, victim client.ObjectKey) {
	if class := after.Spec.Template.Spec.ClassRef.Name; class != l.templates[len(l.templates)-1].class {
		l.templates = append(l.templates, template{c.Revision, class})
	}
	down := invariants.Replicas(before.Spec.Replicas) - invariants.Replicas(after.Spec.Replicas)
	for ; down < 0; down++ {
		l.excuseOne()
	}
	for _, m := range l.namedMachines(victim) {
		if down == 0 {
			return
		}
		down--
		l.dueMachines[m.UID] = c.Revision
		delete(l.excused, m.UID)
		size := invariants.Replicas(after.Spec.Replicas)
		if !l.known || l.sizedFor <= size || l.notExcused() > l.live()-size {
			// The autoscaler has raised the size, but the manager has not acted on this yet. So the machine may stay.
			l.excused[m.UID] = true
		}
	}
	l.free += down
}

func (l *ledger) namedMachines(victim client.ObjectKey) (found []*v1beta1.Machine) {
	for _, id := range slices.Sorted(maps.Keys(l.world.oracle.machines)) {
		m := l.world.oracle.machines[id]
		if _, due := l.dueMachines[id]; !m.DeletionTimestamp.IsZero() || !marked(m) || due && !l.excused[id] {
			continue
		}
		if client.ObjectKeyFromObject(m) == victim {
			found = slices.Insert(found, 0, m)
		} else {
			found = append(found, m)
		}
	}
	return found
}

func marked(m *v1beta1.Machine) bool {
	_, ok := m.Annotations[v1beta1.AnnotationDeleteMachine]
	return ok
}

func (l *ledger) live() (n int) {
	for _, m := range l.world.oracle.machines {
		if m.DeletionTimestamp.IsZero() {
			n++
		}
	}
	return n
}

func (l *ledger) notExcused() (n int) {
	for id := range l.dueMachines {
		if m := l.world.oracle.machines[id]; m != nil && m.DeletionTimestamp.IsZero() && !l.excused[id] {
			n++
		}
	}
	return n
}

func (l *ledger) excuseOne() {
	for _, id := range slices.Sorted(maps.Keys(l.dueMachines)) {
		if m := l.world.oracle.machines[id]; m != nil && m.DeletionTimestamp.IsZero() && !l.excused[id] {
			l.excused[id] = true
			return
		}
	}
}

// noteSize records the size for which the manager computes the replicas of the sets.
func (l *ledger) noteSize(c apiserver.Change, set *v1beta1.MachineSet) {
	f := l.world.top()
	owner := metav1.GetControllerOfNoCopy(set)
	if c.Actor != Manager || f == nil || f.controller.table.Name != "machinedeployment" || owner == nil ||
		l.world.oracle.deployments[owner.UID] == nil {
		return
	}
	for _, v := range l.world.oracle.deployments[owner.UID].Versions {
		if v.Position <= f.seen["MachineDeployment"] {
			l.sizedFor, l.known = v.Replicas, true
		}
	}
}

func (l *ledger) checkDeletion(m *v1beta1.Machine) {
	o := &l.world.oracle
	owner := metav1.GetControllerOfNoCopy(m)
	if owner == nil || o.sets[owner.UID] == nil {
		return
	}
	instructed := l.lastLowering[owner.UID]
	if marked(m) {
		switch lowered, due := l.dueMachines[m.UID]; {
		case !due || l.excused[m.UID]:
			l.excuseOne()
		case instructed.known < lowered:
			// The manager deleted this machine for another reason, before it knew the new size. So the manager must
			// delete an additional machine to reach the new size.
			l.free++
		}
		return
	}
	isAvailable := invariants.IsAvailable(m, 0, l.world.clock.at)
	if isAvailable {
		l.checkOrder(m, owner.UID, instructed.machines)
	}
	// When the manager reduced the replicas of the set, it chose the machine to delete by the state that it had read.
	// The machine may have become available since then.
	then := versionAt(o.history[m.UID], instructed.machines)
	if then != nil && !invariants.IsAvailable(then, 0, l.world.clock.at) {
		isAvailable = false
	}
	switch {
	case l.isOutdated(m, instructed.known):
		l.excuseOne() // The rollout made room.
	case !isAvailable && l.notExcused() >= l.live()-l.size(owner.UID):
		l.excuseOne() // This machine was deleted instead of a due machine.
	case o.liveMachines(owner.UID, o.seenRevisions()["Machine"]) > l.smallestSize(owner.UID, instructed.known):
	case l.free > 0:
		l.free--
	case !isAvailable:
		l.excuseOne() // An unavailable machine may always be deleted instead.
	default:
		o.breach("autoscaler",
			"the manager deleted machine %s of set %s, which is available, of the wanted revision and not marked", m.Name,
			owner.Name)
	}
}

// isOutdated reports whether the machine is outdated: the deployment's template had another class at the given
// revision or later.
func (l *ledger) isOutdated(m *v1beta1.Machine, since int64) bool {
	for i, t := range l.templates {
		if (i+1 == len(l.templates) || l.templates[i+1].revision > since) && t.class != m.Spec.ClassRef.Name {
			return true
		}
	}
	return false
}

func (l *ledger) size(set uid) int {
	if d := l.world.oracle.deployments[l.world.oracle.sets[set].Controller]; d != nil {
		return d.LastBounds().Replicas
	}
	return 0
}

// smallestSize returns the smallest size of a set's deployment since a revision. A set of the current revision deletes
// all machines beyond this size, even if older sets still have machines. The machine that an autoscaler has marked may
// have been in an older set.
func (l *ledger) smallestSize(set uid, since int64) int {
	o := &l.world.oracle
	n := math.MaxInt
	if d := o.deployments[o.sets[set].Controller]; d != nil {
		for i, v := range d.Versions {
			if i+1 == len(d.Versions) || d.Versions[i+1].Position > since {
				n = min(n, v.Replicas)
			}
		}
	}
	return n
}

func (l *ledger) specifiedAt(set uid, known int64) (revision int64) {
	o := &l.world.oracle
	if d := o.deployments[o.sets[set].Controller]; d != nil {
		for _, v := range d.Versions {
			if v.Position <= known {
				revision = v.Position
			}
		}
	}
	return revision
}

// checkOrder checks the deletion of an available machine. First, the set must delete the machines that had the delete
// mark at the given revision, or were not launched at that time.
func (l *ledger) checkOrder(m *v1beta1.Machine, set uid, known int64) {
	o := &l.world.oracle
	_, replicas := o.sets[set].BoundsSince(o.seenRevisions()["MachineSet"])
	surplus, first := -replicas, []string(nil)
	for id, versions := range o.history {
		last := versions[len(versions)-1].machine
		then := versionAt(versions, known)
		belongs := func(x *v1beta1.Machine) bool {
			if x == nil || !x.DeletionTimestamp.IsZero() {
				return false
			}
			owner := metav1.GetControllerOfNoCopy(x)
			return owner != nil && owner.UID == set
		}
		lives := belongs(last)
		if lives || belongs(then) && l.deleters[id] != Manager {
			surplus++
		}
		if lives && belongs(then) && (marked(last) && marked(then) || last.Spec.ProviderID == "" &&
			then.Spec.ProviderID == "") {
			first = append(first, last.Name)
		}
	}
	if len(first) > 0 && surplus <= len(first) {
		slices.Sort(first)
		o.breach("autoscaler", "the manager deleted machine %s, which is available and not marked, before %v of its set",
			m.Name, first)
	}
}

func versionAt(versions []version, revision int64) *v1beta1.Machine {
	for _, v := range slices.Backward(versions) {
		if v.revision <= revision {
			return v.machine
		}
	}
	return nil
}

func (l *ledger) resetFree() {
	w, live, instructed := l.world, 0, 0
	if l.free == 0 || len(w.frames) > 0 {
		return
	}
	for _, p := range w.processes {
		if p.dead || p.name == Manager && slices.ContainsFunc(p.views(), (*view).behind) {
			return
		}
	}
	for _, m := range w.oracle.machines {
		if m.Spec.ClassRef.Name != l.templates[len(l.templates)-1].class || !m.DeletionTimestamp.IsZero() {
			return
		}
		live++
	}
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineSet")) {
		instructed += invariants.Replicas(o.(*v1beta1.MachineSet).Spec.Replicas)
	}
	if l.known && l.sizedFor == live && instructed == live {
		l.free = 0
	}
}

func (l *ledger) missing() (missing []string) {
	for _, id := range slices.Sorted(maps.Keys(l.world.oracle.machines)) {
		m := l.world.oracle.machines[id]
		if _, due := l.dueMachines[id]; due && !l.excused[id] {
			missing = append(missing,
				fmt.Sprintf("machine %s was marked and the size was lowered for it, but it still exists", m.Name))
		}
		if marked(m) {
			missing = append(missing, fmt.Sprintf("machine %s still has a mark", m.Name))
		}
	}
	return missing
}
