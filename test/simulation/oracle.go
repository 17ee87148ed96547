package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/invariants"
)

type uid = types.UID

// oracle judges each write against the state that it was applied to.
type oracle struct {
	world *World
	// judged is how much of each cluster's log was.
	judgedControl, judgedTarget int64
	machines                    map[uid]*v1beta1.Machine
	// history has the versions of each machine that ever was.
	history map[uid][]version
	// reported is when the manager reported a set how many machines to have: what the set does then is judged by what
	// could be known at that time.
	instructions map[uid][]instruction
	// knew is how much of each kind the manager had seen when it last wrote something: it never knows less again, whoever
	// leads.
	knew map[string]int64
	sets map[uid]*invariants.Owner
	// cordoned is when providers cordoned Nodes.
	cordoned    map[uid]time.Time
	deployments map[uid]*invariants.Owner
	// owed is how many machines of a deployment, or of a set without one, may go because people want fewer.
	owed map[uid]int
	// surplus are the machines that a former leader made: they may be one too many, until the leader sees them.
	surplus map[uid]bool
	err     error
}

// instruction is a set reported how many machines to have, by somebody who had seen so much of each kind.
type instruction struct {
	revision int64
	seen     map[string]int64
}

// version is a machine from a revision on, until the next one.
type version struct {
	revision int64
	// machine is nil once it is gone.
	machine *v1beta1.Machine
	actor   string
}

func (o *oracle) begin(w *World) {
	*o = oracle{world: w, machines: map[uid]*v1beta1.Machine{}, history: map[uid][]version{},
		instructions: map[uid][]instruction{}, knew: map[string]int64{}, surplus: map[uid]bool{},
		owed: map[uid]int{},
		sets: map[uid]*invariants.Owner{}, deployments: map[uid]*invariants.Owner{}}
	o.judgedControl, o.judgedTarget = w.control.Revision(), w.target.Revision()
	for _, kind := range []string{"MachineDeployment", "MachineSet", "Machine"} {
		for _, object := range w.control.Snapshot(v1beta1.GroupVersion.WithKind(kind)) {
			o.take(o.judgedControl, object)
		}
	}
}

// broken notes the first breach.
func (o *oracle) broken(err error) {
	if o.err == nil {
		o.err = err
		o.world.logf("BREACH: %v", err)
	}
}

func (o *oracle) breach(rule, format string, args ...any) {
	if o.world.corrupted.allows(rule, o.world.clock.at) {
		return
	}
	o.broken(fmt.Errorf("%s: %s", rule, fmt.Sprintf(format, args...)))
}

func (o *oracle) failure() error { return o.err }

// check checks what was written since it was last called.
func (w *World) check() {
	o := &w.oracle
	if revision := w.control.Revision(); revision > o.judgedControl {
		changes := w.control.Changes(o.judgedControl)
		o.judgedControl = revision
		for _, c := range changes {
			w.autoscaler.check(c)
			w.legacy.control(c)
			o.control(c)
			w.secrets.written(w.control, c)
		}
	}
	if revision := w.target.Revision(); revision > o.judgedTarget {
		changes := w.target.Changes(o.judgedTarget)
		o.judgedTarget = revision
		for _, c := range changes {
			w.legacy.target(c)
			o.target(c)
			w.secrets.written(w.target, c)
		}
	}
	w.legacy.check()
	w.checkStatements()
	o.mayInsist()
	o.mayWaitOn()
	o.mayGoOnFailing()
	o.mayFillRequests()
	o.mayRetry()
	for _, in := range w.cloud.instances {
		if n := len(w.cloud.of(in.owner())); n > 1 && in.owner() != "" {
			o.breach("I2", "machine %s (%s) has %d instances", in.MachineKey, in.owner(), n)
		}
	}
}

func (o *oracle) control(c apiserver.Change) {
	o.checkControlChange(c)
	if c.Actor == Manager {
		for kind, revision := range o.seen() {
			o.knew[kind] = max(o.knew[kind], revision)
		}
	}
	if m, ok := c.New.(*v1beta1.Machine); ok {
		if o.world.onStored != nil && c.Type != watch.Deleted && (c.Actor == Manager || c.Actor == Provider) {
			o.world.onStored(m)
		}
		switch before, known := o.machines[m.UID]; {
		case c.Type == watch.Deleted:
			o.mayBeGone(m)
			if known && before.DeletionTimestamp.IsZero() {
				o.mayDelete(c, before)
				o.mayTakeOut(c, before)
				o.mayEndKeeping(c, before)
			}
			delete(o.machines, m.UID)
			o.history[m.UID] = append(o.history[m.UID], version{c.Revision, nil, c.Actor})
			return
		case c.Type == watch.Added:
			o.machines[m.UID] = m
			o.world.machinesMade++
			if c.Actor == Manager+Former {
				o.surplus[m.UID] = true
			}
			o.mayCreate(c, m)
		case known && before.DeletionTimestamp.IsZero() && !m.DeletionTimestamp.IsZero():
			o.mayDelete(c, before)
			o.mayTakeOut(c, before)
			o.mayEndKeeping(c, before)
		case known:
			o.mayHandOver(c, before, m)
			o.mayUpdate(c, before, m)
			o.mayCallUpToDate(c, m)
			o.mayCallVanished(before, m)
			o.mayBeFailed(before, m)
			o.mayBeFailedByLimit(before, m)
		}
	}
	o.followScaleDown(c)
	if c.Type != watch.Deleted {
		o.take(c.Revision, c.New)
		if n := len(o.history[c.New.GetUID()]); n > 0 {
			o.history[c.New.GetUID()][n-1].actor = c.Actor
		}
	}
	if after, ok := c.New.(*v1beta1.MachineSet); ok && c.Actor == Manager {
		before, was := c.Old.(*v1beta1.MachineSet)
		if !was || before == nil || invariants.Replicas(after.Spec.Replicas) != invariants.Replicas(before.Spec.Replicas) {
			o.instructions[after.UID] = append(o.instructions[after.UID], instruction{c.Revision, o.seen()})
		}
	}
}

// take takes note of an object.
func (o *oracle) take(revision int64, object client.Object) {
	switch x := object.(type) {
	case *v1beta1.Machine:
		o.machines[x.UID] = x
		o.history[x.UID] = append(o.history[x.UID], version{revision, x, ""})
	case *v1beta1.MachineSet:
		note(o.sets, revision, x, invariants.BoundsOfSet(x))
	case *v1beta1.MachineDeployment:
		note(o.deployments, revision, x, invariants.BoundsOfDeployment(x))
	}
}

func note(all map[uid]*invariants.Owner, revision int64, object client.Object, b invariants.Bounds) {
	known := all[object.GetUID()]
	if known == nil {
		known = &invariants.Owner{}
		all[object.GetUID()] = known
	}
	known.Note(revision, object, b)
}

// mayBeGone is I1: a Machine is gone only when its instance is.
func (o *oracle) mayBeGone(m *v1beta1.Machine) {
	if o.stripped(m) || o.leftByForce(m) {
		return
	}
	if found := o.world.cloud.of(m.UID); len(found) > 0 {
		o.breach("I1", "machine %s is gone, its instance %s is not", m.Name, found[0].ProviderID)
	}
	if o.world.cloud.leftOf(provider.DeleteRequest{Machine: provider.Machine{UID: m.UID}}) {
		o.breach("I1", "machine %s is gone, parts of its instance are not", m.Name)
	}
	for _, l := range o.world.cloud.late {
		if _, spent := o.world.cloud.tokens[l.req.Token]; l.req.Machine.UID == m.UID && !spent {
			o.breach("I1", "machine %s is gone, and its instance is yet to come (%s)", m.Name, l.req.Token)
		}
	}
	for _, l := range o.world.cloud.tagging {
		in := o.world.cloud.byID(l.req.ProviderID)
		if l.retag == nil && l.req.Machine.UID == m.UID && in != nil && in.MachineUID == "" {
			o.breach("I1", "machine %s is gone, and its tags are yet to come on %s", m.Name, in.ProviderID)
		}
	}
}

// mayCallVanished judges that the instance of a machine is said to be gone.
func (o *oracle) mayCallVanished(before, m *v1beta1.Machine) {
	if m.Status.FailureReason != v1beta1.FailureInstanceVanished || before.Status.FailureReason == m.Status.FailureReason {
		return
	}
	if in := o.world.cloud.byID(m.Spec.ProviderID); in != nil && in.dying.IsZero() {
		o.breach("vanished", "machine %s is said to have lost its instance %s, which is there", m.Name, in.ProviderID)
	}
}

// mayCreate is the first half of I3.
func (o *oracle) mayCreate(c apiserver.Change, m *v1beta1.Machine) {
	owner := metav1.GetControllerOfNoCopy(m)
	if c.Actor != Manager || owner == nil || o.sets[owner.UID] == nil {
		return
	}
	set := o.sets[owner.UID]
	seen := o.seen()
	if most, _ := set.Within(seen["MachineSet"]); o.live(owner.UID) > most+o.exchanging(owner.UID) {
		o.breach("I3", "%s made machine %s: set %s now has %d of at most %d", c.Actor, m.Name, owner.Name,
			o.live(owner.UID), most)
	}
	deployment := o.deployments[set.Controller]
	if deployment == nil {
		return
	}
	live := 0
	for id, s := range o.sets {
		if s.Controller == set.Controller {
			live += o.live(id)
		}
	}
	if most, _ := deployment.Within(o.since(owner.UID, "MachineDeployment")); live > most {
		o.breach("I3", "%s made machine %s of set %s: the deployment now has %d of at most %d", c.Actor, m.Name, owner.Name,
			live, most)
	}
}

// exchanging is how many machines a set without a deployment may have beyond its replicas: one, to exchange another.
func (o *oracle) exchanging(set uid) int {
	if o.sets[set].Controller != "" {
		return 0
	}
	return min(1, o.count(set, func(m uid) bool {
		return slices.ContainsFunc(o.believed(m), func(v *v1beta1.Machine) bool {
			return v != nil && annotated(v, v1beta1.AnnotationReplace)
		})
	}))
}

// mayDelete is the second half of I3. What became unavailable by itself since the decision could be known counts as
// available: a machine's own failure is unassigned write. The decision is the manager's pass or, where that carries
// out what a deployment has reported the set, the telling.
func (o *oracle) mayDelete(c apiserver.Change, m *v1beta1.Machine) {
	owner := metav1.GetControllerOfNoCopy(m)
	if c.Actor != Manager || owner == nil || o.sets[owner.UID] == nil {
		return
	}
	set := o.sets[owner.UID]
	who, bounds, kind := "set "+owner.Name, set, "MachineSet"
	members := func(id uid) bool { return id == owner.UID }
	if deployment := o.deployments[set.Controller]; deployment != nil {
		who, bounds, kind = "the deployment", deployment, "MachineDeployment"
		members = func(id uid) bool { return o.sets[id] != nil && o.sets[id].Controller == set.Controller }
	}
	seen, minReady := o.seen(), bounds.Last().MinReadySeconds
	if !invariants.Available(m, minReady, o.world.clock.at) || o.markedInGoodFaith(m) {
		return
	}
	known := seen["Machine"]
	n := 0
	for id := range o.history {
		if id != m.UID && o.availableSince(id, known, members, minReady) {
			n++
		}
	}
	if _, least := bounds.Within(seen[kind]); n < least {
		o.breach("I3", "%s deleted machine %s of set %s: %s has %d available of at least %d", c.Actor, m.Name, owner.Name,
			who, n, least)
	}
}

// since is from when on versions of a kind count for what a set does: those that its controller had not seen, and those
// that whoever reported it how many to have, in words that it had seen, had not.
func (o *oracle) since(set uid, kind string) int64 {
	seen := o.seen()
	instructed := o.sets[set].Versions[0].Position
	for _, t := range o.instructions[set] {
		if t.revision <= seen["MachineSet"] {
			instructed = t.seen[kind]
		}
	}
	return min(seen[kind], instructed)
}

// availableSince reports whether a machine of the members is available, or was at or after a revision until something
// other than the manager's own write changed that.
func (o *oracle) availableSince(id uid, revision int64, members func(uid) bool, minReady int32) bool {
	versions := o.history[id]
	return invariants.AvailableSince(len(versions), func(i int) invariants.Version {
		v := versions[i]
		return invariants.Version{
			Position:  v.revision,
			Available: v.of(members) && invariants.Available(v.machine, minReady, o.world.clock.at),
			OwnEnd:    v.actor == Manager && endsAt(versions, i),
		}
	}, revision)
}

// seen is what whoever acts now had seen when its pass began.
func (o *oracle) seen() map[string]int64 {
	if f := o.world.top(); f != nil {
		return f.seen
	}
	return nil
}

// live counts the machines of a set that nobody deletes, but for those that others than the leader made.
func (o *oracle) live(set uid) int {
	return o.count(set, func(m uid) bool { return !o.surplus[m] && !o.intruded(m) })
}

// extra counts the machines of a set that nobody deletes and that a former leader made. Whatever the set deletes for
// them need not be one of them.
func (o *oracle) extra(set uid) int {
	return o.count(set, func(m uid) bool { return o.surplus[m] })
}

func (o *oracle) count(set uid, which func(uid) bool) (n int) {
	for _, m := range o.machines {
		if owner := metav1.GetControllerOfNoCopy(m); owner != nil && owner.UID == set && m.DeletionTimestamp.IsZero() &&
			which(m.UID) {
			n++
		}
	}
	return n
}

func deleted(v version) bool { return v.machine == nil || !v.machine.DeletionTimestamp.IsZero() }

// endsAt reports whether a version is the first one that is being deleted or gone.
func endsAt(versions []version, i int) bool {
	return i > 0 && deleted(versions[i]) && !deleted(versions[i-1])
}

// of reports whether the machine is there and belongs to one of the sets.
func (v version) of(members func(set uid) bool) bool {
	if v.machine == nil {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(v.machine)
	return owner != nil && members(owner.UID)
}

// target judges what happens to Nodes: one goes after its instance, never before.
func (o *oracle) target(c apiserver.Change) {
	o.checkTargetChange(c)
	node, ok := c.New.(*corev1.Node)
	o.drains(c)
	if in := o.world.cloud.byID(providerIDOf(node)); in != nil && in.owner() == "" && c.Actor == Provider {
		o.breach("adoption", "%s %s node %s, whose instance is unassigned", c.Actor, c.Verb, node.Name)
	}
	if !ok || c.Type != watch.Deleted || c.Actor != Provider && c.Actor != Provider+Former {
		return
	}
	if in := o.world.cloud.byID(node.Spec.ProviderID); in != nil {
		o.breach("order", "node %s is gone, its instance %s is not", node.Name, in.ProviderID)
	}
}

// last names what was written after two revisions.
func (o *oracle) last(control, target int64) string {
	var out []string
	for _, c := range append(o.world.control.Changes(control), o.world.target.Changes(target)...) {
		if out = append(out, fmt.Sprintf("%s %s %s %s", c.Actor, c.Verb, c.GVK.Kind, c.Key)); len(out) == 5 {
			break
		}
	}
	return strings.Join(out, "; ")
}
