package integration

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// Another program creates machines in the name of a set. The frozen set still deletes machines.
//
// Rules: overshoot-freezes-owner, freeze-ends-with-recovery.
func TestSetWithTooManyMachinesIsFrozen(t *testing.T) {
	b := newBench(t)
	b.newSet(2)
	b.others(b.set("workers"), 2)
	b.check("MachineSet/workers")
	b.wantNoLabel(b.set("workers")) // This number is still tolerated.

	b.others(b.set("workers"), 1)
	b.check("MachineSet/workers")
	set := b.set("workers")
	b.wantFrozen(set, set.Status.Conditions)
	const message = "There are 5 machines, but at most 4 are allowed. No machines are created until the surplus is gone."
	b.wantEvents("Warning Overshoot " + message)
	b.wantMetric(1)

	b.setPass("workers")
	b.wantLive(2)
	m := b.live()[0]
	m.Finalizers = nil
	b.must(b.admin.Update(b.ctx(), &m))
	b.must(b.admin.Delete(b.ctx(), &m))
	b.setPass("workers")
	b.wantLive(1)
	set = b.set("workers")
	b.wantFrozen(set, set.Status.Conditions)
	if c := meta.FindStatusCondition(set.Status.Conditions, v1beta1.ConditionFrozen); c.Message != message {
		t.Errorf("the message of the set is %q", c.Message)
	}

	if wait := b.check("MachineSet/workers"); wait <= 0 || wait > limits.Period {
		t.Errorf("checks again after %s", wait)
	}
	b.setPass("workers")
	b.wantLive(1)
	b.clock.Step(limits.Period)
	b.check("MachineSet/workers")
	b.wantNoLabel(b.set("workers"))
	b.wantMetric(0)
	b.setPass("workers")
	b.wantLive(2)
	if c := meta.FindStatusCondition(b.set("workers").Status.Conditions,
		v1beta1.ConditionFrozen); c.Status != metav1.ConditionFalse || c.Reason != v1beta1.ReasonThawed {
		t.Errorf("the condition of the set is %+v", c)
	}
	b.wantEvents()
}

// A freeze affects the deployment and its sets with machines.
//
// Rules: overshoot-freezes-owner, overshoot-counts-family.
func TestDeploymentIsFrozenWithItsSets(t *testing.T) {
	b := newBench(t)
	b.newDeployment(3) // 3 replicas and a surge of 1
	b.wantLive(3)
	set := &b.allSets()[0]
	b.others(set, 3)
	b.check("MachineDeployment/web")
	b.wantNoLabel(b.deployment())

	b.others(set, 1)
	b.check("MachineDeployment/web")
	b.deploymentPass()
	b.setPass(set.Name)
	d, frozen := b.deployment(), b.set(set.Name)
	b.wantFrozen(d, d.Status.Conditions)
	b.wantFrozen(frozen, frozen.Status.Conditions)
	b.wantMetric(1)
	b.wantLive(3)
	const event = "Warning Overshoot There are 7 machines, but at most 6 are allowed. No machines are created until the surplus is gone."
	b.wantEvents(event, event)

	b.change(d, func() { d.Spec.Replicas = new(int32(5)) })
	b.deploymentPass()
	b.setPass(set.Name)
	b.wantLive(3)

	b.clock.Step(limits.Period)
	b.check("MachineDeployment/web")
	b.wantNoLabel(b.deployment())
	b.wantNoLabel(b.set(set.Name))
	b.deploymentPass()
	b.setPass(set.Name)
	b.wantLive(5)
}

// After a user has ended a freeze, the fleet cannot be frozen again for one --overshoot-check-period.
//
// Rule: unfreeze-annotation.
func TestUnfreezeAnnotationEndsFreeze(t *testing.T) {
	for _, of := range []string{"deployment", "set"} {
		t.Run(of, func(t *testing.T) {
			b := newBench(t)
			b.newDeployment(1)
			set := &b.allSets()[0]
			b.others(set, 9)
			b.check("MachineDeployment/web")
			d := b.deployment()
			b.wantFrozen(d, d.Status.Conditions)

			b.clock.Step(limits.Period / 2) // The period counts from the last step.
			asked := client.Object(d)
			if of == "set" {
				asked = b.set(set.Name)
			}
			b.change(asked, func() { asked.SetAnnotations(map[string]string{v1beta1.AnnotationUnfreeze: "", "other": "stays"}) })
			b.check("MachineDeployment/web")
			for _, o := range []client.Object{b.deployment(), b.set(set.Name)} {
				b.wantNoLabel(o)
				if _, there := o.GetAnnotations()[v1beta1.AnnotationUnfreeze]; there {
					t.Errorf("%T still has the annotation", o)
				}
			}
			b.must(b.admin.Get(b.ctx(), client.ObjectKeyFromObject(asked), asked))
			if asked.GetAnnotations()["other"] != "stays" {
				t.Errorf("annotations are %v", asked.GetAnnotations())
			}
			b.wantMetric(0)

			b.clock.Step(limits.Period - 10*time.Second)
			b.check("MachineDeployment/web")
			b.wantNoLabel(b.deployment())
			b.clock.Step(10 * time.Second)
			b.check("MachineDeployment/web")
			d = b.deployment()
			b.wantFrozen(d, d.Status.Conditions)
		})
	}
}

// Rule: freeze-by-person-kept.
func TestFreezeByUserIsKept(t *testing.T) {
	b := newBench(t)
	b.newDeployment(1)
	set, d := &b.allSets()[0], b.deployment()
	b.change(d, func() { d.Labels = map[string]string{v1beta1.LabelFreeze: "true"} })
	b.others(set, 9)
	b.check("MachineDeployment/web")
	frozen := b.set(set.Name)
	b.wantFrozen(frozen, frozen.Status.Conditions)
	b.wantMetric(1)

	b.setPass(set.Name)
	b.clock.Step(limits.Period)
	b.check("MachineDeployment/web")
	b.wantNoLabel(b.set(set.Name))
	b.wantMetric(0)
	if got := b.deployment().Labels[v1beta1.LabelFreeze]; got != "true" {
		t.Errorf("the label of the deployment is %q", got)
	}

	d = b.deployment()
	b.change(d, func() { d.Annotations = map[string]string{v1beta1.AnnotationUnfreeze: ""} })
	b.check("MachineDeployment/web")
	d = b.deployment()
	if _, there := d.Annotations[v1beta1.AnnotationUnfreeze]; there || d.Labels[v1beta1.LabelFreeze] != "true" {
		t.Errorf("labels are %v, annotations %v", d.Labels, d.Annotations)
	}
}

// Rule: freeze-by-person-kept.
func TestFreezeByUserDuringThawIsKept(t *testing.T) {
	b := newBench(t)
	b.newSet(1)
	b.others(b.set("workers"), 9)
	b.check("MachineSet/workers")
	b.setPass("workers")
	b.clock.Step(limits.Period)
	b.beforeWrite = func() error {
		b.beforeWrite = nil
		set := b.set("workers")
		b.change(set, func() { set.Labels[v1beta1.LabelFreeze] = "mine" })
		return nil
	}
	if wait := b.check("MachineSet/workers"); wait <= 0 {
		t.Error("does not check again")
	}
	b.check("MachineSet/workers")
	b.clock.Step(limits.Period)
	b.check("MachineSet/workers")
	if got := b.set("workers").Labels[v1beta1.LabelFreeze]; got != "mine" {
		t.Errorf("the label is %q", got)
	}
	b.wantMetric(0)
}
