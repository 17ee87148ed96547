package integration

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: freeze-confirmed-live.
func TestStaleCacheDoesNotFreeze(t *testing.T) {
	b := newBench(t)
	b.newSet(2)
	gone := b.others(b.set("workers"), 9)
	for _, m := range gone {
		b.must(b.admin.Delete(b.ctx(), m))
		b.stale = append(b.stale, *m)
	}
	for range 20 {
		b.check("MachineSet/workers")
	}
	b.wantNoLabel(b.set("workers"))
	if b.liveLists != 1 || b.writes != 0 {
		t.Errorf("%d live lists and %d writes", b.liveLists, b.writes)
	}
	b.wantEvents()
}

// Rule: overshoot-freezes-owner.
func TestDeletedAndPreservedMachinesDoNotCount(t *testing.T) {
	b := newBench(t)
	b.newSet(2)
	preserved := func(m *v1beta1.Machine) {
		m.Annotations = map[string]string{v1beta1.AnnotationPreservedUntil: time.Now().Add(time.Hour).Format(time.RFC3339)}
	}
	b.others(b.set("workers"), 9, preserved)
	for _, m := range b.others(b.set("workers"), 9, func(m *v1beta1.Machine) {
		m.Finalizers = []string{v1beta1.MachineFinalizer}
	}) {
		b.must(b.admin.Delete(b.ctx(), m))
	}
	b.others(b.set("workers"), 9, func(m *v1beta1.Machine) { m.OwnerReferences = nil })
	for range 3 {
		b.check("MachineSet/workers")
	}
	b.wantNoLabel(b.set("workers"))
	if b.writes != 0 || b.liveLists != 0 {
		t.Errorf("%d writes, %d live lists", b.writes, b.liveLists)
	}
}

// Even a new process tolerates the surplus for a period after replicas were reduced.
//
// Rule: former-size-tolerated.
func TestScalingDownIsNotAnOvershoot(t *testing.T) {
	for name, restarted := range map[string]bool{"same process": false, "new process": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.newSet(12)
			set := b.set("workers")
			b.change(set, func() { set.Spec.Replicas = new(int32(2)) })
			if restarted {
				b.restart()
			}
			wait := b.check("MachineSet/workers")
			b.wantNoLabel(b.set("workers"))
			if wait <= 0 || wait > limits.Period {
				t.Errorf("checks again after %s", wait)
			}
			b.clock.Step(wait)
			b.check("MachineSet/workers")
			set = b.set("workers")
			b.wantFrozen(set, set.Status.Conditions)
		})
	}
}

// A machine that is being handed over may appear in two sets.
//
// Rule: overshoot-counts-family.
func TestMachinesBeingHandedOverCountOnce(t *testing.T) {
	b := newBench(t)
	b.newDeployment(4)
	d, old := b.deployment(), b.allSets()[0]
	other := old.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Namespace: b.namespace, Name: "other", Labels: old.Labels,
		OwnerReferences: old.OwnerReferences}
	other.Spec.Replicas = new(int32(0))
	other.Status = v1beta1.MachineSetStatus{}
	b.must(b.admin.Create(b.ctx(), other))
	for _, m := range b.live() {
		copied := *m.DeepCopy()
		copied.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(other,
			v1beta1.GroupVersion.WithKind("MachineSet"))}
		b.stale = append(b.stale, copied)
	}
	b.check("MachineDeployment/web")
	b.wantNoLabel(d)
	if b.liveLists != 0 {
		t.Error("machines were counted twice")
	}
}

// Rules: freeze-ends-with-recovery, freeze-confirmed-live.
func TestInterruptedFreezeIsCompleted(t *testing.T) {
	for name, cutAt := range map[string]int{"before the condition": 2, "before the set": 3,
		"before the set's condition": 4} {
		for process, restarted := range map[string]bool{"same": false, "new": true} {
			t.Run(name+", "+process+" process", func(t *testing.T) {
				b := newBench(t)
				b.newDeployment(1)
				set := b.allSets()[0]
				b.others(&set, 9)
				b.failWrite(cutAt)
				patient := b.check("MachineDeployment/web")
				if patient <= 0 || patient > 5*time.Second {
					t.Errorf("checks again after %s", patient)
				}
				if restarted {
					b.restart()
				}
				b.clock.Step(patient)
				b.check("MachineDeployment/web")
				d, frozen := b.deployment(), b.set(set.Name)
				b.wantFrozen(d, d.Status.Conditions)
				b.wantFrozen(frozen, frozen.Status.Conditions)
				b.wantMetric(1)

				b.writes = 0
				for range 5 {
					b.clock.Step(limits.Period)
					b.check("MachineDeployment/web")
				}
				if b.writes != 0 {
					t.Errorf("%d writes after the freeze was complete", b.writes)
				}
			})
		}
	}
}

// Rule: freeze-ends-with-recovery.
func TestInterruptedFreezeLastsAWholePeriod(t *testing.T) {
	b := newBench(t)
	b.newDeployment(1)
	set := b.allSets()[0]
	b.others(&set, 9)
	b.failWrite(4)
	wait := b.check("MachineDeployment/web")
	b.setPass(set.Name)
	b.wantLive(1)
	b.clock.Step(wait)
	b.check("MachineDeployment/web")
	d, frozen := b.deployment(), b.set(set.Name)
	b.wantFrozen(d, d.Status.Conditions)
	b.wantFrozen(frozen, frozen.Status.Conditions)

	b.clock.Step(limits.Period)
	b.check("MachineDeployment/web")
	b.wantNoLabel(b.deployment())
	b.wantNoLabel(b.set(set.Name))
}

// Rule: freeze-by-person-kept.
func TestInterruptedThawIsCompleted(t *testing.T) {
	b := newBench(t)
	b.newDeployment(1)
	set := b.allSets()[0]
	b.others(&set, 9)
	b.check("MachineDeployment/web")
	b.setPass(set.Name)
	b.wantLive(1)
	b.clock.Step(limits.Period)
	b.failWrite(2)
	b.check("MachineDeployment/web")
	b.wantNoLabel(b.deployment())
	b.restart()
	b.check("MachineDeployment/web")
	b.wantNoLabel(b.set(set.Name))
}

// A deployment adopts a set and scales it down. The machines of the set that are not deleted yet must not freeze the
// fleet.
//
// Rule: former-size-tolerated.
func TestAdoptedSetIsNotAnOvershoot(t *testing.T) {
	b := newBench(t)
	b.newDeployment(1)
	b.check("MachineDeployment/web")
	b.newSet(9)
	joined, d := b.set("workers"), b.deployment()
	b.change(joined, func() {
		joined.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d,
			v1beta1.GroupVersion.WithKind("MachineDeployment"))}
	})
	b.check("MachineSet/workers")
	b.check("MachineDeployment/web")
	b.wantNoLabel(b.deployment())
	b.wantNoLabel(b.set("workers"))
	if b.writes != 0 {
		t.Errorf("%d writes", b.writes)
	}
}
