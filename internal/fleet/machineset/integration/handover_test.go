package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/api/v1beta1"
)

// exchange creates a deployment with two sets. The bench reconciles the set "workers", and exchange returns the set
// "other".
func exchange(b *bench, replicas, otherReplicas int32) (other *v1beta1.MachineSet) {
	b.Helper()
	template := func(pool string) v1beta1.MachineTemplateSpec {
		return v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"pool": pool}},
			Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "of-" + pool}, Version: "v1.36.0"}}
	}
	d := &v1beta1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "fleet"},
		Spec: v1beta1.MachineDeploymentSpec{Replicas: ptr.To(replicas + otherReplicas),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "workers"}},
			Template: template("workers"), Strategy: v1beta1.DeploymentStrategy{Type: v1beta1.StrategyInPlace}},
	}
	b.must(b.admin.Create(b.ctx, d))
	owners := []metav1.OwnerReference{*metav1.NewControllerRef(d, v1beta1.GroupVersion.WithKind("MachineDeployment"))}
	b.newSet(replicas, func(s *v1beta1.MachineSet) {
		s.OwnerReferences = owners
		s.Spec.Template.Spec.UserDataRef = nil
	})
	other = &v1beta1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "other", OwnerReferences: owners,
			Annotations: map[string]string{v1beta1.AnnotationReceiveFrom: "workers"}},
		Spec: v1beta1.MachineSetSpec{Replicas: ptr.To(otherReplicas),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "other"}},
			Template: template("other")},
	}
	b.must(b.admin.Create(b.ctx, other))
	return other
}

func order(value string, replicas int32) func(*v1beta1.MachineSet) {
	return func(s *v1beta1.MachineSet) {
		s.Annotations = map[string]string{v1beta1.AnnotationMoveTo: value}
		s.Spec.Replicas = ptr.To(replicas)
	}
}

func (b *bench) ofSet(set *v1beta1.MachineSet) (n int) {
	for _, m := range b.machines() {
		if metav1.IsControlledBy(&m, set) {
			n++
		}
	}
	return n
}

// Rule handover-gives-surplus: each machine is handed over with one patch, and none is deleted or created.
func TestMachinesAreHandedOver(t *testing.T) {
	b := newBench(t)
	other := exchange(b, 4, 0)
	b.reconcile()
	b.runAll()
	b.reconcile()
	b.play(b.lives()[2].Name, b.failed)
	ill := b.lives()[2].Name
	b.changeSet(order("other:2", 2))
	b.took()
	b.reconcile()
	b.wantCalls(map[string]int{"patch": 2, "delete": 0, "create": 0})
	b.wantLives(2)
	if n := b.ofSet(other); n != 2 {
		t.Fatalf("the other set has %d machines, want 2", n)
	}
	if m := b.machine(ill); !metav1.IsControlledBy(m, other) {
		t.Error("a machine that is of use was handed over before one that is not")
	}
	for _, m := range b.machines() {
		if !metav1.IsControlledBy(&m, other) {
			continue
		}
		if len(m.OwnerReferences) != 1 || m.Labels["pool"] != "other" || m.Labels[v1beta1.LabelMachineSet] != "other" ||
			m.Spec.ClassRef.Name != "of-other" || m.Spec.Version != "v1.36.0" || m.Spec.ProviderID == "" {
			t.Errorf("a machine of the other set: %+v, %+v", m.ObjectMeta, m.Spec)
		}
	}
	b.reconcile()
	b.wantCalls(map[string]int{"patch": 0, "delete": 0, "create": 0})

	// While the set has the annotation move-to, it does not replace a machine that a user deletes.
	b.must(b.admin.Delete(b.ctx, &b.lives()[0]))
	b.reconcile()
	b.wantCalls(map[string]int{"delete": 0, "create": 0})
}

// Rule handover-gives-surplus: the annotation move-to may contain a higher number than the surplus of the set, or than
// all its machines. The set hands over only its surplus.
func TestNoMoreAreHandedOverThanThereAreTooMany(t *testing.T) {
	for _, replicas := range []int32{0, 2} {
		b := newBench(t)
		other := exchange(b, 3, 0)
		b.reconcile()
		b.runAll()
		b.changeSet(order("other:9", replicas))
		b.reconcile()
		b.wantLives(int(replicas))
		if n := b.ofSet(other); n != 3-int(replicas) {
			t.Errorf("the other set has %d machines, want %d", n, 3-replicas)
		}
	}
}

// Rule handover-gives-surplus: without a receiving set, nothing is handed over or deleted.
func TestNothingIsHandedOverToASetThatIsNotReady(t *testing.T) {
	for name, spoil := range map[string]func(b *bench, other *v1beta1.MachineSet){
		"no such set":     func(b *bench, _ *v1beta1.MachineSet) { b.changeSet(order("nobody:2", 1)) },
		"malformed order": func(b *bench, _ *v1beta1.MachineSet) { b.changeSet(order("a/b", 1)) },
		"does not receive": func(b *bench, other *v1beta1.MachineSet) {
			other.Annotations = nil
			b.must(b.admin.Update(b.ctx, other))
			b.changeSet(order("other:2", 1))
		},
		"being deleted": func(b *bench, other *v1beta1.MachineSet) {
			other.Finalizers = []string{"example.com/hold"}
			b.must(b.admin.Update(b.ctx, other))
			b.must(b.admin.Delete(b.ctx, other))
			b.changeSet(order("other:2", 1))
		},
		"of another deployment": func(b *bench, other *v1beta1.MachineSet) {
			other.OwnerReferences[0].UID = "of-another"
			b.must(b.admin.Update(b.ctx, other))
			b.changeSet(order("other:2", 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			other := exchange(b, 3, 0)
			b.reconcile()
			b.runAll()
			spoil(b, other)
			b.took()
			if result := b.reconcile(); result.RequeueAfter <= 0 && name != "malformed order" {
				t.Error("it does not look again")
			}
			b.wantCalls(map[string]int{"patch": 0, "delete": 0, "create": 0})
			b.wantLives(3)
		})
	}
}

// Rule handover-gives-surplus: the deployment has canceled the hand-over, but the cache does not show this yet.
func TestAnOrderIsConfirmedLive(t *testing.T) {
	b := newBench(t)
	other := exchange(b, 3, 0)
	b.reconcile()
	b.runAll()
	b.hooks.set = func(s *v1beta1.MachineSet) {
		if s.Name == "workers" {
			s.Annotations = map[string]string{v1beta1.AnnotationMoveTo: "other:2"}
			s.Spec.Replicas = ptr.To[int32](1)
		}
	}
	b.reconcile()
	if n := b.ofSet(other); n != 0 {
		t.Errorf("%d machines were handed over without an order", n)
	}
}

// Rule handover-receiver-waits: until the deployment has counted received machines, the set neither deletes nor
// replaces them.
func TestReceivedMachinesStayUntilTheDeploymentCountsThem(t *testing.T) {
	b := newBench(t)
	other := exchange(b, 2, 0)
	b.reconcile()
	b.runAll()
	b.changeSet(func(s *v1beta1.MachineSet) {
		s.Annotations = map[string]string{v1beta1.AnnotationReceiveFrom: "other"}
		s.Spec.Replicas = ptr.To[int32](1)
	})
	b.took()
	b.reconcile()
	b.wantCalls(map[string]int{"delete": 0, "create": 0})
	b.wantLives(2)

	// The cache shows the new replicas, but not the second machine that the deployment has counted.
	hidden, before := b.lives()[1].Name, b.set().ResourceVersion
	b.scale(2)
	b.hooks.machines = func(l *v1beta1.MachineList) {
		var seen []v1beta1.Machine
		for _, m := range l.Items {
			if m.Name != hidden {
				seen = append(seen, m)
			}
		}
		l.Items = seen
	}
	b.hooks.seen = func() string { return before }
	b.reconcile() // The pass waits for the cache.
	b.reconcile()
	b.wantCalls(map[string]int{"create": 0, "delete": 0, "live list *v1beta1.MachineList NotOlderThan": 1})

	b.hooks.machines, b.hooks.seen = nil, nil
	b.changeDeployment(func(d *v1beta1.MachineDeployment) { d.Spec.Replicas = ptr.To[int32](3) })
	b.scale(3)
	other.Annotations = map[string]string{v1beta1.AnnotationMoveTo: "workers:1"}
	b.must(b.admin.Update(b.ctx, other))
	b.reconcile()
	b.wantLives(2)
	other.Annotations = nil
	b.must(b.admin.Update(b.ctx, other))
	b.reconcile()
	b.wantLives(3)
}

// Rule handover-gives-surplus: a set without a deployment ignores the annotations.
func TestASetWithoutADeploymentHandsNothingOver(t *testing.T) {
	b := newBench(t)
	b.newSet(3)
	b.reconcile()
	b.changeSet(order("other:2", 1))
	b.reconcile()
	b.wantLives(1)
}

// Rule: preserved-before-replaced.
func TestAMachineToBePreservedIsNotReplaced(t *testing.T) {
	b := newBench(t)
	b.newSet(1)
	b.reconcile()
	b.runAll()
	b.reconcile()
	name := b.lives()[0].Name
	b.changeMachine(name, func(m *v1beta1.Machine) {
		m.Annotations[v1beta1.AnnotationPreserve] = v1beta1.PreserveWhenFailed
	})
	b.play(name, b.failed)
	b.took()
	b.reconcile()
	b.wantCalls(map[string]int{"delete": 0, "create": 0})
	b.changeMachine(name, func(m *v1beta1.Machine) {
		m.OwnerReferences = nil
		delete(m.Labels, v1beta1.LabelMachineSet)
		m.Annotations[v1beta1.AnnotationPreservedUntil] = "2030-01-01T00:00:00Z"
	})
	b.reconcile()
	b.wantCalls(map[string]int{"delete": 0, "create": 1})
	b.wantLives(1)
	if !b.machine(name).DeletionTimestamp.IsZero() {
		t.Error("the preserved machine was deleted")
	}
}
