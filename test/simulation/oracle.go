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

// oracle checks each write against the state of the world right before it. Methods that begin with "may" check rules
// and report broken ones.
type oracle struct {
	world *World
	// judgedControl and judgedTarget are the revisions of the two clusters up to which the oracle has checked all
	// changes.
	judgedControl, judgedTarget int64
	machines                    map[uid]*v1beta1.Machine
	history                     map[uid][]version
	// instructions contains the manager's changes of the replicas of each set. A set that acts on such a change may
	// rely on outdated state: the state that the manager had read before it wrote the replicas.
	instructions map[uid][]instruction
	// managerSeen contains, for each kind, the revision up to which the manager had seen all changes at its last write.
	// A later leader must have seen at least the changes up to this revision.
	managerSeen map[string]int64
	sets        map[uid]*invariants.Owner
	cordoned    map[uid]time.Time
	// volumeLeft contains when the last pod that used a volume ended or was deleted.
	volumeLeft  map[string]time.Time
	deployments map[uid]*invariants.Owner
	// scaleDowns contains how many machines may be deleted because users have scaled down, for each deployment and each
	// standalone set.
	scaleDowns map[uid]int
	// judged counts how often each rule was checked.
	judged map[string]int
	err    error
}

// instruction is a manager's change of the replicas of a set. For each kind, it contains the revision that the manager
// had seen at that time.
type instruction struct {
	revision int64
	seen     map[string]int64
}

// version is the state of a machine between two of its changes. The version is valid until the revision of the next
// version.
type version struct {
	revision int64
	machine  *v1beta1.Machine
	actor    string
}

func (o *oracle) begin(w *World) {
	*o = oracle{world: w, machines: map[uid]*v1beta1.Machine{}, history: map[uid][]version{},
		instructions: map[uid][]instruction{}, managerSeen: map[string]int64{},
		scaleDowns: map[uid]int{}, judged: map[string]int{},
		sets: map[uid]*invariants.Owner{}, deployments: map[uid]*invariants.Owner{}}
	o.judgedControl, o.judgedTarget = w.control.Revision(), w.target.Revision()
	for _, kind := range []string{"MachineDeployment", "MachineSet", "Machine"} {
		for _, object := range w.control.Snapshot(v1beta1.GroupVersion.WithKind(kind)) {
			o.take(o.judgedControl, object)
		}
	}
}

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

func (w *World) check() {
	o := &w.oracle
	if revision := w.control.Revision(); revision > o.judgedControl {
		changes := w.control.Changes(o.judgedControl)
		o.judgedControl = revision
		for _, c := range changes {
			w.autoscaler.check(c)
			w.legacy.control(c)
			o.control(c)
			w.secrets.checkWrite(w.control, c)
		}
	}
	if revision := w.target.Revision(); revision > o.judgedTarget {
		changes := w.target.Changes(o.judgedTarget)
		o.judgedTarget = revision
		for _, c := range changes {
			w.legacy.target(c)
			o.target(c)
			w.secrets.checkWrite(w.target, c)
		}
	}
	w.legacy.check()
	w.checkStatements()
	o.mayInsist()
	o.mayWaitForNode()
	o.mayGoOnFailing()
	o.mayFillRequests()
	o.mayRetry()
	for _, in := range w.cloud.instances {
		if n := len(w.cloud.instancesOf(in.owner())); n > 1 && in.owner() != "" {
			o.breach("I2", "machine %s (%s) has %d instances", in.MachineKey, in.owner(), n)
		}
	}
}

func (o *oracle) control(c apiserver.Change) {
	o.checkControlChange(c)
	if c.Actor == Manager {
		for kind, revision := range o.seenRevisions() {
			o.managerSeen[kind] = max(o.managerSeen[kind], revision)
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
				o.mayDisruptByDelete(c, before)
				o.mayDeletePreserved(c, before)
			}
			delete(o.machines, m.UID)
			o.history[m.UID] = append(o.history[m.UID], version{c.Revision, nil, c.Actor})
			return
		case c.Type == watch.Added:
			o.machines[m.UID] = m
			o.world.machinesMade++
			o.mayCreate(c, m)
			o.mayPlace(c, m)
		case known && before.DeletionTimestamp.IsZero() && !m.DeletionTimestamp.IsZero():
			o.mayDelete(c, before)
			o.mayDeleteInPlacement(c, before)
			o.mayDisruptByDelete(c, before)
			o.mayDeletePreserved(c, before)
		case known:
			o.mayHandOver(c, before, m)
			o.mayUpdate(c, before, m)
			o.mayMove(c, before, m)
			o.mayKeep(c, before, m)
			o.mayRebalance(c, before, m)
			o.mayCallUpToDate(c, m)
			o.mayCallVanished(before, m)
			o.mayBeFailed(before, m)
			o.mayBeFailedByLimit(before, m)
		}
	}
	o.followScaleDown(c)
	if c.Type != watch.Deleted {
		o.take(c.Revision, c.New)
		if c.GVK.Kind == "Machine" {
			o.world.safety.followMeltdown(o.world) // A machine that becomes Running counts from now on.
		}
		if n := len(o.history[c.New.GetUID()]); n > 0 {
			o.history[c.New.GetUID()][n-1].actor = c.Actor
		}
	}
	if after, ok := c.New.(*v1beta1.MachineSet); ok && c.Actor == Manager {
		before, was := c.Old.(*v1beta1.MachineSet)
		if !was || before == nil || invariants.Replicas(after.Spec.Replicas) != invariants.Replicas(before.Spec.Replicas) {
			o.instructions[after.UID] = append(o.instructions[after.UID], instruction{c.Revision, o.seenRevisions()})
		}
	}
}

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

// mayBeGone checks invariant I1: a Machine may be removed only after its instance has been deleted.
func (o *oracle) mayBeGone(m *v1beta1.Machine) {
	if o.stripped(m) || o.leftByForce(m) {
		return
	}
	o.judged["I1"]++
	if found := o.world.cloud.instancesOf(m.UID); len(found) > 0 {
		o.breach("I1", "machine %s is gone, but its instance %s exists", m.Name, found[0].ProviderID)
	}
	if o.world.cloud.leftOf(provider.DeleteRequest{Machine: provider.Machine{UID: m.UID}}) {
		o.breach("I1", "machine %s is gone, but parts of its instance are left", m.Name)
	}
	for _, l := range o.world.cloud.late {
		if _, spent := o.world.cloud.tokens[l.req.Token]; l.req.Machine.UID == m.UID && !spent {
			o.breach("I1", "machine %s is gone, but the creation of its instance is pending (%s)", m.Name, l.req.Token)
		}
	}
	for _, l := range o.world.cloud.tagging {
		in := o.world.cloud.byID(l.req.ProviderID)
		if l.retag == nil && l.req.Machine.UID == m.UID && in != nil && in.MachineUID == "" {
			o.breach("I1", "machine %s is gone, but its tags on %s are pending", m.Name, in.ProviderID)
		}
	}
}

// mayCallVanished checks that a machine gets the failure reason InstanceVanished only if its instance does not exist.
func (o *oracle) mayCallVanished(before, m *v1beta1.Machine) {
	if m.Status.FailureReason != v1beta1.FailureInstanceVanished || before.Status.FailureReason == m.Status.FailureReason {
		return
	}
	o.judged["vanished"]++
	if in := o.world.cloud.byID(m.Spec.ProviderID); in != nil && in.dying.IsZero() {
		o.breach("vanished", "machine %s is marked as InstanceVanished, but its instance %s exists", m.Name, in.ProviderID)
	}
}

// mayCreate checks the first half of I3: there are never more machines than the bounds allow.
func (o *oracle) mayCreate(c apiserver.Change, m *v1beta1.Machine) {
	owner := metav1.GetControllerOfNoCopy(m)
	if c.Actor != Manager || owner == nil || o.sets[owner.UID] == nil {
		return
	}
	o.judged["I3 maximum"]++
	set := o.sets[owner.UID]
	seen := o.seenRevisions()
	live := o.liveMachines(owner.UID, seen["Machine"])
	if most, _ := set.BoundsSince(seen["MachineSet"]); live > most+o.replacementSurge(owner.UID) {
		o.breach("I3", "%s created machine %s: set %s now has %d, want at most %d", c.Actor, m.Name, owner.Name, live, most)
	}
	deployment := o.deployments[set.Controller]
	if deployment == nil {
		return
	}
	live = 0
	for id, s := range o.sets {
		if s.Controller == set.Controller {
			live += o.liveMachines(id, o.countsFrom(owner.UID, "Machine"))
		}
	}
	if most, _ := deployment.BoundsSince(o.countsFrom(owner.UID, "MachineDeployment")); live > most {
		o.breach("I3", "%s created machine %s of set %s: the deployment now has %d, want at most %d", c.Actor, m.Name,
			owner.Name, live, most)
	}
}

// replacementSurge returns how many machines a standalone set may have beyond its replicas: 1 if a machine is marked
// for replacement.
func (o *oracle) replacementSurge(set uid) int {
	if o.sets[set].Controller != "" {
		return 0
	}
	return min(1, o.count(set, func(m uid) bool {
		return slices.ContainsFunc(o.believedVersions(m), func(v *v1beta1.Machine) bool {
			return v != nil && annotated(v, v1beta1.AnnotationReplace)
		})
	}))
}

// mayDelete checks the second half of I3: enough machines remain available. The manager may not know yet that something
// else has made a machine unavailable, so such a machine still counts. The oracle therefore uses what the manager had
// seen at the beginning of its current reconciliation.
func (o *oracle) mayDelete(c apiserver.Change, m *v1beta1.Machine) {
	owner := metav1.GetControllerOfNoCopy(m)
	if c.Actor != Manager || owner == nil || o.sets[owner.UID] == nil {
		return
	}
	set := o.sets[owner.UID]
	ownerName, bounds, kind := "set "+owner.Name, set, "MachineSet"
	members := func(id uid) bool { return id == owner.UID }
	if deployment := o.deployments[set.Controller]; deployment != nil {
		ownerName, bounds, kind = "the deployment", deployment, "MachineDeployment"
		members = func(id uid) bool { return o.sets[id] != nil && o.sets[id].Controller == set.Controller }
	}
	seen, minReady := o.seenRevisions(), bounds.LastBounds().MinReadySeconds
	if !invariants.IsAvailable(m, minReady, o.world.clock.at) || o.markedInGoodFaith(m) || markedForGPU(m) {
		return
	}
	o.judged["I3 minimum"]++
	known := seen["Machine"]
	n := 0
	for id := range o.history {
		if id != m.UID && o.availableSince(id, known, members, minReady) {
			n++
		}
	}
	if _, least := bounds.BoundsSince(seen[kind]); n < least {
		o.breach("I3", "%s deleted machine %s of set %s: %s has %d available, want at least %d", c.Actor, m.Name, owner.Name,
			ownerName, n, least)
	}
}

// countsFrom returns the oldest revision on which an action of a set may be based. The set may rely on any version of
// an object that was current at this revision or later. The result is the smaller one of two revisions: the one that
// the set's controller had seen, and the one that the manager had seen before it wrote the replicas.
func (o *oracle) countsFrom(set uid, kind string) int64 {
	seen := o.seenRevisions()
	instructed := o.sets[set].Versions[0].Position
	for _, t := range o.instructions[set] {
		if t.revision <= seen["MachineSet"] {
			instructed = t.seen[kind]
		}
	}
	return min(seen[kind], instructed)
}

// availableSince reports whether a machine of the given sets counts as available. A machine also counts if it became
// unavailable later than the given revision, but not by a write of the manager.
func (o *oracle) availableSince(id uid, revision int64, members func(uid) bool, minReady int32) bool {
	versions := o.history[id]
	return invariants.AvailableSince(len(versions), func(i int) invariants.Version {
		v := versions[i]
		return invariants.Version{
			Position:  v.revision,
			Available: v.belongsTo(members) && invariants.IsAvailable(v.machine, minReady, o.world.clock.at),
			OwnEnd:    v.actor == Manager && endsAt(versions, i),
		}
	}, revision)
}

// seenRevisions returns, for each kind, the revision that the current process had seen at the beginning of its
// reconciliation.
func (o *oracle) seenRevisions() map[string]int64 {
	if f := o.world.top(); f != nil {
		return f.seen
	}
	return nil
}

// liveMachines returns the number of live machines of a set. A machine that a former leader or an intruder created
// counts only if the current leader had seen all changes up to this creation.
func (o *oracle) liveMachines(set uid, since int64) int {
	return o.count(set, func(m uid) bool {
		versions := o.history[m]
		return len(versions) == 0 || versions[0].actor != Manager+FormerSuffix && versions[0].actor != intruder ||
			versions[0].revision <= since
	})
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

func endsAt(versions []version, i int) bool {
	return i > 0 && deleted(versions[i]) && !deleted(versions[i-1])
}

func (v version) belongsTo(members func(set uid) bool) bool {
	if v.machine == nil {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(v.machine)
	return owner != nil && members(owner.UID)
}

// target is called for each change in the target cluster, and checks this change. A Node may be deleted only after its
// instance.
func (o *oracle) target(c apiserver.Change) {
	o.checkTargetChange(c)
	o.mayRemediateByOperator(c)
	node, ok := c.New.(*corev1.Node)
	o.drains(c)
	if ok {
		o.mayCordonPlaced(c, node)
	}
	if in := o.world.cloud.byID(providerIDOf(node)); in != nil && in.owner() == "" && c.Actor == Provider {
		o.breach("adoption", "%s did %s of node %s, whose instance belongs to no machine", c.Actor, c.Verb, node.Name)
	}
	if !ok || c.Type != watch.Deleted || c.Actor != Provider && c.Actor != Provider+FormerSuffix {
		return
	}
	if in := o.world.cloud.byID(node.Spec.ProviderID); in != nil {
		o.breach("order", "node %s is gone, but its instance %s exists", node.Name, in.ProviderID)
	}
}

func (o *oracle) lastWrites(control, target int64) string {
	var out []string
	for _, c := range append(o.world.control.Changes(control), o.world.target.Changes(target)...) {
		if out = append(out, fmt.Sprintf("%s %s %s %s", c.Actor, c.Verb, c.GVK.Kind, c.Key)); len(out) == 5 {
			break
		}
	}
	return strings.Join(out, "; ")
}
