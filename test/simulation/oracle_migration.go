package simulation

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/controllermanager"
	"machinist.dev/machinist/test/invariants"
)

// The rules for migrations, J1 to J7. Each rule is checked at the writes and cloud calls that could break it.

var definitionKind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")

var fencedPhases = phases[2:9]

func (l *legacy) breach(rule, format string, args ...any) {
	l.world.oracle.breach(rule, format, args...)
}

// checkCall checks a cloud call of the old controller. J1: it makes no call while the fence is up.
func (l *legacy) checkCall(what string) {
	if phase := l.world.phase(); slices.Contains(fencedPhases, phase) {
		l.breach("J1", "the old controller %s in the phase %s", what, phase)
	}
}

// mayTakeOver checks J1: Machinist takes over no machine while the old controller may act or has a pending creation.
func (l *legacy) mayTakeOver(what string) {
	switch {
	case l.mayAct():
		l.breach("J1", "%s while the old controller may act", what)
	case len(l.pending) > 0:
		l.breach("J1", "%s while the old controller's creation of the instance of %s is pending", what, l.pending[0].name)
	}
}

func (o *oracle) mayTag(req provider.AdoptRequest) {
	if l := o.world.legacy; l != nil {
		l.mayTakeOver("instance " + req.ProviderID + " is tagged")
	}
}

// mayTouch checks J4: a migration neither creates nor deletes an instance in the cloud.
func (o *oracle) mayTouch(verb, name string) {
	if o.world.legacy != nil {
		o.breach("J4", "the cloud is asked to %s the instance of %s", verb, name)
	}
}

// check enforces J2: each instance with Machinist's tags has a Machine with Machinist's finalizer.
func (l *legacy) check() {
	if l == nil {
		return
	}
	for _, in := range l.world.cloud.instances {
		if in.MachineUID == "" {
			continue
		}
		m := l.world.oracle.machines[in.MachineUID]
		if m == nil || !slices.Contains(m.Finalizers, v1beta1.MachineFinalizer) {
			l.breach("J2", "instance %s has the tags of machine %s, which is gone or has no finalizer", in.ProviderID,
				in.MachineKey)
		}
	}
}

func (l *legacy) control(c apiserver.Change) {
	if l == nil {
		return
	}
	l.followLease(c)
	switch {
	case c.GVK == clusterKind:
		l.mayPause(c)
	case c.GVK.Group == l.system.Group():
		l.mayChangeOld(c)
	case c.GVK == infrastructureKind("SimMachine"):
		l.mayChangeInfrastructure(c)
	}
	switch o := c.New.(type) {
	case *v1beta1.Machine:
		l.mayUnpause(c, o)
	case *v1beta1.Migration:
		if before, _ := c.Old.(*v1beta1.Migration); before != nil && before.Status.Phase != o.Status.Phase &&
			o.Status.Phase == v1beta1.MigrationAborted {
			for _, left := range append(l.machinistTraces(), l.pauses()...) {
				l.breach("J6", "the migration is aborted, but %s is left", left)
			}
		}
	}
}

// mayChangeOld checks that a write of an old object obeys the invariants J3, J6 and J7. The invariant J6 applies until
// the migration is committed. J7: users do not change old objects while the fence is up.
func (l *legacy) mayChangeOld(c apiserver.Change) {
	if c.Actor == oldController || c.Actor == person {
		if c.Actor == person && l.world.phase() == v1beta1.MigrationAdopted {
			l.breach("J7", "%s does %s of the old %s %s behind the fence", c.Actor, c.Verb, c.GVK.Kind, c.Key)
		}
		return
	}
	if !l.world.phase().Irrevocable() {
		l.breach("J6", "%s does %s of the old %s %s in the phase %s", c.Actor, c.Verb, c.GVK.Kind, c.Key, l.world.phase())
	}
	m, ok := c.New.(*apiserver.Custom)
	if !ok || c.GVK != l.kind(source.RoleMachine).GroupVersionKind {
		return
	}
	in := l.instanceOf(m.UID)
	switch {
	case in == nil || !in.dying.IsZero():
	case c.Type != watch.Deleted && m.DeletionTimestamp != nil:
		l.breach("J3", "%s deletes the old machine %s, whose finalizers and instance still exist", c.Actor, m.Name)
	case c.Type != watch.Deleted:
	case in.MachineUID == "":
		l.breach("J3", "the old machine %s is gone, but its instance has no tags of Machinist", m.Name)
	case in.legacy.role:
		l.breach("J3", "the old machine %s is gone, but its instance still has the tag for collection", m.Name)
	}
}

// mayUnpause checks J1 for Machinist's Machines. The migrator creates a Machine only in the paused state. The migrator
// creates and unpauses Machines only while the fence is up.
func (l *legacy) mayUnpause(c apiserver.Change, m *v1beta1.Machine) {
	if !strings.HasPrefix(c.Actor, Migrator) || c.Type == watch.Deleted {
		return
	}
	paused := func(o client.Object) bool {
		_, is := o.GetAnnotations()[v1beta1.AnnotationPaused]
		return is
	}
	switch {
	case c.Type == watch.Added:
		if !paused(m) {
			l.breach("J1", "machine %s is not paused when it is created", m.Name)
		}
		l.mayTakeOver("machine " + m.Name + " is created")
	case paused(c.Old) && !paused(m):
		l.mayTakeOver("machine " + m.Name + " is unpaused")
	}
}

// target checks invariant J5 for each change in the target cluster: a migration does not delete, taint or cordon Nodes.
func (l *legacy) target(c apiserver.Change) {
	node, ok := c.New.(*corev1.Node)
	if l == nil || !ok || c.Actor == "kubelet" || c.Actor == controllermanager.NodeController ||
		c.Actor == oldController || c.Actor == person {
		return
	}
	before, _ := c.Old.(*corev1.Node)
	switch {
	case c.Type == watch.Deleted:
		l.breach("J5", "%s deletes node %s", c.Actor, node.Name)
	case before == nil:
	case before.Spec.Unschedulable != node.Spec.Unschedulable:
		l.breach("J5", "%s changes whether node %s is schedulable", c.Actor, node.Name)
	case len(node.Spec.Taints) > len(before.Spec.Taints):
		l.breach("J5", "%s taints node %s: %v", c.Actor, node.Name, node.Spec.Taints)
	}
}

func (l *legacy) machinistTraces() (left []string) {
	w := l.world
	for _, kind := range []string{"Machine", "MachineSet", "MachineDeployment", "MachineHealthCheck"} {
		for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind(kind)) {
			left = append(left, kind+" "+o.GetName())
		}
	}
	for _, o := range slices.Concat(w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineClass")),
		w.control.Snapshot(corev1.SchemeGroupVersion.WithKind("Secret"))) {
		// Users can set the label too, so the label alone proves nothing.
		if o.GetLabels()[v1beta1.LabelMigration] != "" && o.GetAnnotations()[v1beta1.AnnotationMigratedFrom] != "" {
			left = append(left, fmt.Sprintf("%T %s", o, o.GetName()))
		}
	}
	for _, in := range w.cloud.instances {
		if in.MachineUID != "" {
			left = append(left, "the tags of instance "+in.ProviderID)
		}
	}
	for _, o := range w.target.Snapshot(nodeKind) {
		for key := range o.GetAnnotations() {
			if strings.Contains(key, v1beta1.GroupName) {
				left = append(left, "the annotation "+key+" of node "+o.GetName())
			}
		}
	}
	return left
}

func (l *legacy) missing() string {
	var missing []string
	report := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }
	if len(l.world.script) > 0 {
		report("action %q is still pending", l.world.script[0].Name)
	}
	m := l.world.migration()
	switch {
	case m == nil || m.Status.Phase == v1beta1.MigrationAborted:
		l.oldFleetMissing(report)
	case m.Status.Phase == v1beta1.MigrationCompleted:
		l.newFleetMissing(report)
	default:
		report("the migration is in phase %s: %v", m.Status.Phase, m.Status.Troubles)
		for _, c := range m.Status.Conditions {
			report("%s=%s %s", c.Type, c.Status, c.Message)
		}
	}
	if m != nil && m.Status.Phase.HasEnded() && len(m.Finalizers) > 0 {
		report("the migration has ended but has finalizers")
	}
	for _, o := range l.world.control.Snapshot(corev1.SchemeGroupVersion.WithKind("ConfigMap")) {
		if _, ofFence := o.GetLabels()[v1beta1.LabelMigrationFence]; ofFence {
			report("the record %s of the fence is left", o.GetName())
		}
	}
	return strings.Join(missing, "; ")
}

func (l *legacy) oldFleetMissing(report func(string, ...any)) {
	for _, left := range append(l.machinistTraces(), l.pauses()...) {
		report("%s is left", left)
	}
	if lease := l.lease(); l.pod() == nil || lease == nil || *lease.Spec.HolderIdentity != oldController {
		report("the old controller does not lead")
	}
	machines := l.objects(source.RoleMachine)
	want := 1
	for _, d := range l.objects(source.RoleDeployment) {
		want += replicasOf(d) + 1
	}
	for _, m := range machines {
		if m.Namespace == otherNamespace {
			want++
		}
		if in := l.instanceOf(m.UID); in == nil || m.DeletionTimestamp != nil {
			report("the old machine %s has no instance, or is being deleted", m.Name)
		} else {
			l.nodeMissing(in, true, report)
		}
	}
	if len(machines) != want || len(l.world.cloud.instances) != want {
		report("there are %d old machines and %d instances, want %d", len(machines), len(l.world.cloud.instances), want)
	}
}

// nodeMissing reports differences of an instance's Node from its expected final state. marked means that the Node must
// have the mark of the old system.
func (l *legacy) nodeMissing(in *instance, marked bool, report func(string, ...any)) {
	node := l.world.node(in.NodeName)
	switch {
	case node == nil || readiness(node) != corev1.ConditionTrue:
		report("the node of %s is not ready", in.ProviderID)
	case len(node.Spec.Taints) > 0 || node.Spec.Unschedulable:
		report("node %s cannot be used: %v", node.Name, node.Spec.Taints)
	case marked != (node.Annotations[l.nodeMark()] != ""):
		report("node %s has the mark of the old system: %t, want the opposite", node.Name, !marked)
	}
}

func (l *legacy) newFleetMissing(report func(string, ...any)) {
	w := l.world
	staying := 0
	for _, m := range l.objects(source.RoleMachine) {
		if m.Namespace != otherNamespace {
			report("the old machine %s is left", m.Name)
			continue
		}
		staying++
		if in := l.instanceOf(m.UID); in == nil {
			report("the old machine %s has no instance", m.Name)
		}
	}
	for _, left := range append(l.pauses(), l.infrastructure()...) {
		report("%s is left", left)
	}
	if n := len(w.control.Snapshot(definitionKind)); n > 0 != (staying > 0 || l.isClusterAPI()) {
		report("%d CustomResourceDefinitions and %d old machines are left", n, staying)
	}
	if len(l.objects(source.RoleSet)) > 0 {
		report("old sets are left")
	}
	machines := w.control.Snapshot(v1beta1.GroupVersion.WithKind("Machine"))
	owned := map[string]int{}
	for _, o := range machines {
		m := o.(*v1beta1.Machine)
		if owner := metav1.GetControllerOfNoCopy(m); owner != nil {
			owned[owner.Name]++
		}
		in := w.cloud.byID(m.Spec.ProviderID)
		switch {
		case m.Status.Phase != v1beta1.MachineRunning || !upToDate(m):
			report("machine %s is %s: %s", m.Name, m.Status.Phase, conditionsOf(m.Status.Conditions))
		case in == nil || in.MachineUID != m.UID:
			report("machine %s has no instance", m.Name)
		default:
			l.nodeMissing(in, false, report)
		}
		l.reportUnfinished(m, report)
	}
	const want = 4 // The deployment was scaled to 2, and a set and a single machine have one each.
	// A machine that its set has released belongs to the administrators who changed its labels.
	released := max(0, len(w.withoutOwners())-1)
	staying += released
	if len(machines)-released != want || len(w.cloud.instances) != want+staying {
		report("there are %d machines and %d instances, want %d and %d", len(machines), len(w.cloud.instances), want,
			want+staying)
	}
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineSet")) {
		s := o.(*v1beta1.MachineSet)
		l.reportUnfinished(s, report)
		if n := owned[s.Name]; n != invariants.Replicas(s.Spec.Replicas) || n != int(s.Status.AvailableReplicas) {
			report("set %s has %d machines of %d, and %d are available", s.Name, n, invariants.Replicas(s.Spec.Replicas),
				s.Status.AvailableReplicas)
		}
	}
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineDeployment")) {
		d := o.(*v1beta1.MachineDeployment)
		l.reportUnfinished(d, report)
		for _, lack := range deploymentMissing(d, 2) {
			report("%s", lack)
		}
	}
}

func (l *legacy) reportUnfinished(o client.Object, report func(string, ...any)) {
	for _, key := range []string{v1beta1.LabelMigration, v1beta1.LabelFreeze} {
		if o.GetLabels()[key] != "" && !l.world.corrupted.markedAgain(o, key) {
			report("%T %s has the label %s", o, o.GetName(), key)
		}
	}
	if _, paused := o.GetAnnotations()[v1beta1.AnnotationPaused]; paused {
		report("%T %s is paused", o, o.GetName())
	}
}
