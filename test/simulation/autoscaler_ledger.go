package simulation

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/invariants"
)

// ledger holds the manager to what an autoscaler asked for: of the machines that are available, only those go that were
// marked or that a rollout replaces. Somebody who lowers the size by more than there are marked machines has to take
// what goes then; those are written down as free.
type ledger struct {
	world *World
	// due are marked machines for which the size was lowered: each has to go. settled are those of which it does not
	// matter any more, since the size was raised again, or one that was marked, of no use or of an old revision went in
	// their place.
	due     map[uid]int64 // revision at which the size was lowered
	settled map[uid]bool
	// free is by how much the size was lowered without a machine being named.
	free int
	// templates are the classes of the deployment, the last one last.
	templates []template
	// reported is when the manager last reported a set to be smaller.
	lastLowering map[uid]lowering
	// takers are who deleted each machine.
	takers map[uid]string
}

type template struct {
	revision int64
	class    string
}

// lowering is a write by which a set shrinks. known is up to where whoever did it knew the deployment, and machines up
// to where at least the machines have to be known among which the set chooses: to the last word of the deployment, and
// to what whoever lowered it knew of them (rule victims-from-fresh-view).
type lowering struct{ known, machines int64 }

func (l *ledger) begin(w *World) {
	*l = ledger{world: w, due: map[uid]int64{}, settled: map[uid]bool{}, lastLowering: map[uid]lowering{},
		takers: map[uid]string{}}
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineDeployment")) {
		l.templates = append(l.templates,
			template{w.control.Revision(), o.(*v1beta1.MachineDeployment).Spec.Template.Spec.ClassRef.Name})
	}
}

func (l *ledger) clone(w *World) ledger {
	f := *l
	f.world = w
	f.due, f.settled, f.lastLowering, f.takers = maps.Clone(l.due), maps.Clone(l.settled), maps.Clone(l.lastLowering), maps.Clone(l.takers)
	f.templates = slices.Clone(l.templates)
	return f
}

// check judges a write before the oracle takes note of it. victim is the machine that the autoscaler is about.
func (l *ledger) check(c apiserver.Change, victim client.ObjectKey) {
	l.rest()
	switch o := c.New.(type) {
	case *v1beta1.MachineDeployment:
		if before, ok := c.Old.(*v1beta1.MachineDeployment); ok {
			l.resized(c, before, o, victim)
		}
	case *v1beta1.MachineSet:
		if before, ok := c.Old.(*v1beta1.MachineSet); ok && c.Actor == Manager &&
			invariants.Replicas(o.Spec.Replicas) < invariants.Replicas(before.Spec.Replicas) {
			seen := l.world.oracle.seen()
			known := seen["MachineDeployment"]
			l.lastLowering[o.UID] = lowering{known, max(seen["Machine"], l.specified(o.UID, known))}
		}
	case *v1beta1.Machine:
		before, known := l.world.oracle.machines[o.UID]
		if _, due := l.due[o.UID]; due && c.Actor == Autoscaler && known && !marked(o) {
			// It marked the machine once more, and took that back.
			delete(l.due, o.UID)
			l.free++
		}
		if known && before.DeletionTimestamp.IsZero() && (c.Type == watch.Deleted || !o.DeletionTimestamp.IsZero()) {
			l.takers[o.UID] = c.Actor
			if c.Actor == Manager {
				l.taken(before)
			}
		}
	}
}

// resized takes note of what became of the deployment.
func (l *ledger) resized(c apiserver.Change, before, after *v1beta1.MachineDeployment, victim client.ObjectKey) {
	if class := after.Spec.Template.Spec.ClassRef.Name; class != l.templates[len(l.templates)-1].class {
		l.templates = append(l.templates, template{c.Revision, class})
	}
	down := invariants.Replicas(before.Spec.Replicas) - invariants.Replicas(after.Spec.Replicas)
	for ; down < 0; down++ {
		l.settleOne()
	}
	for _, m := range l.named(victim) {
		if down == 0 {
			return
		}
		down--
		l.due[m.UID] = c.Revision
		delete(l.settled, m.UID)
		size := invariants.Replicas(after.Spec.Replicas)
		if sized, known := l.sizedFor(); !known || sized <= size || l.unsettled() > l.live()-size {
			// The size had been raised a moment before, and nothing was made yet.
			l.settled[m.UID] = true
		}
	}
	l.free += down
}

// named are the marked machines that the size was not lowered for yet, the victim first.
func (l *ledger) named(victim client.ObjectKey) (found []*v1beta1.Machine) {
	for _, id := range slices.Sorted(maps.Keys(l.world.oracle.machines)) {
		m := l.world.oracle.machines[id]
		if _, due := l.due[id]; !m.DeletionTimestamp.IsZero() || !marked(m) || due && !l.settled[id] {
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

// live is how many machines there are, unsettled how many of them have to go.
func (l *ledger) live() (n int) {
	for _, m := range l.world.oracle.machines {
		if m.DeletionTimestamp.IsZero() {
			n++
		}
	}
	return n
}

func (l *ledger) unsettled() (n int) {
	for id := range l.due {
		if m := l.world.oracle.machines[id]; m != nil && m.DeletionTimestamp.IsZero() && !l.settled[id] {
			n++
		}
	}
	return n
}

// settleOne releases the manager from one machine that is due.
func (l *ledger) settleOne() {
	for _, id := range slices.Sorted(maps.Keys(l.due)) {
		if m := l.world.oracle.machines[id]; m != nil && m.DeletionTimestamp.IsZero() && !l.settled[id] {
			l.settled[id] = true
			return
		}
	}
}

// sizedFor is the number of replicas that the manager last acted upon: what the newest set says. Older ones keep what
// was recorded while they were the newest.
func (l *ledger) sizedFor() (n int, known bool) {
	newest := int64(-1)
	for _, o := range l.world.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineSet")) {
		set := o.(*v1beta1.MachineSet)
		recorded, err := strconv.Atoi(set.Annotations[v1beta1.AnnotationSizedFor])
		if revision := machinedeployment.Revision(set); err == nil && revision > newest {
			n, known, newest = recorded, true, revision
		}
	}
	return n, known
}

// taken judges the deletion of a machine by the manager.
func (l *ledger) taken(m *v1beta1.Machine) {
	o := &l.world.oracle
	owner := metav1.GetControllerOfNoCopy(m)
	if owner == nil || o.sets[owner.UID] == nil {
		return
	}
	instructed := l.lastLowering[owner.UID]
	if marked(m) {
		switch lowered, due := l.due[m.UID]; {
		case !due || l.settled[m.UID]:
			l.settleOne()
		case instructed.known < lowered:
			// It went for another reason before the manager knew, and something else must go now.
			l.free++
		}
		return
	}
	isAvailable := invariants.Available(m, 0, l.world.clock.at)
	if isAvailable {
		l.inTurn(m, owner.UID, instructed.machines)
	}
	// The manager chose by what it knew when it reported the set: a machine may have become available since.
	if then := at(o.history[m.UID], instructed.machines); then != nil && !invariants.Available(then, 0, l.world.clock.at) {
		isAvailable = false
	}
	switch {
	case l.replaced(m, instructed.known):
		l.settleOne() // it made the room
	case !isAvailable && l.unsettled() >= l.live()-l.size(owner.UID):
		l.settleOne() // it went instead
	case o.live(owner.UID) > l.least(owner.UID, instructed.known):
	case l.free > 0:
		l.free--
	case !isAvailable:
		l.settleOne() // as well
	default:
		o.breach("autoscaler",
			"the manager deleted machine %s of set %s, which is available, of the wanted revision and not marked", m.Name,
			owner.Name)
	}
}

// replaced reports whether the machine is of another revision than was wanted at some time since.
func (l *ledger) replaced(m *v1beta1.Machine, since int64) bool {
	for i, t := range l.templates {
		if (i+1 == len(l.templates) || l.templates[i+1].revision > since) && t.class != m.Spec.ClassRef.Name {
			return true
		}
	}
	return false
}

// size is the size of a set's deployment.
func (l *ledger) size(set uid) int {
	if d := l.world.oracle.deployments[l.world.oracle.sets[set].Controller]; d != nil {
		return d.Last().Replicas
	}
	return 0
}

// least is the smallest size that the deployment of a set had at some time since. What a set of the wanted revision has
// beyond it must go, whatever old machines are left: the machine that was named may have been one of those.
func (l *ledger) least(set uid, since int64) int {
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

// specified returns when the specification was written that a set's deployment had for whoever knew it up to a
// revision.
func (l *ledger) specified(set uid, known int64) (revision int64) {
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

// inTurn checks that an available machine is deleted only when those of its set go, too, that are marked or were never
// launched, and were so at the revision up to which the machines had to be known.
func (l *ledger) inTurn(m *v1beta1.Machine, set uid, known int64) {
	o := &l.world.oracle
	_, replicas := o.sets[set].Within(o.seen()["MachineSet"])
	surplus, first := -replicas, []string(nil)
	for id, versions := range o.history {
		last := versions[len(versions)-1].machine
		then := at(versions, known)
		belongs := func(x *v1beta1.Machine) bool {
			if x == nil || !x.DeletionTimestamp.IsZero() {
				return false
			}
			owner := metav1.GetControllerOfNoCopy(x)
			return owner != nil && owner.UID == set
		}
		lives := belongs(last)
		if lives || belongs(then) && l.takers[id] != Manager {
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

// at returns the version at a revision; nil if there was none.
func at(versions []version, revision int64) *v1beta1.Machine {
	for _, v := range slices.Backward(versions) {
		if v.revision <= revision {
			return v.machine
		}
	}
	return nil
}

// rest forgets what is free once the fleet is what was asked for and the manager knows.
func (l *ledger) rest() {
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
	if sized, known := l.sizedFor(); known && sized == live && instructed == live {
		l.free = 0
	}
}

// missing says what the autoscaler asked for and did not get.
func (l *ledger) missing() (missing []string) {
	for _, id := range slices.Sorted(maps.Keys(l.world.oracle.machines)) {
		m := l.world.oracle.machines[id]
		if _, due := l.due[id]; due && !l.settled[id] {
			missing = append(missing, fmt.Sprintf("machine %s was marked and the size lowered for it, and it is there", m.Name))
		}
		if marked(m) {
			missing = append(missing, fmt.Sprintf("machine %s still has a mark", m.Name))
		}
	}
	return missing
}
