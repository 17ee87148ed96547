//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/test/e2e/disrupted"
	"machinist.dev/machinist/test/env"
)

// Machines that are too old or annotated for replacement are replaced. The new machine must be in service before the
// old machine is drained, and the drain waits for the pods. If a machine must not be disrupted before a certain time,
// it is replaced after that time.
//
// Rules: exchange-makes-the-other-first, expired-machines-are-exchanged, exempt-from-disruption.
func TestMarkedAndExpiredMachinesAreReplaced(t *testing.T) {
	t.Parallel()
	m, _ := startForDisruption(t)
	record := m.recordDisruptions()
	sizes := map[string]int{"expiring": 2, "annotated": 3, "standalone": 2}
	m.createPool("expiring", 2, func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.Spec.ExpireAfter = &metav1.Duration{Duration: time.Minute}
	})
	m.createPool("annotated", 3, nil)
	m.createStandaloneSet("standalone", 2)
	expiring := m.awaitPool("expiring", 2, examples.SmallClass)
	annotated := m.awaitPool("annotated", 3, examples.SmallClass)
	standalone := m.awaitPool("standalone", 2, examples.SmallClass)

	t.Log("replace a machine of a standalone set")
	m.annotate(standalone[0].Name, v1beta1.AnnotationReplace, "")
	m.awaitReplaced("standalone", 2, standalone[0])

	t.Log("replace a machine with a protected pod")
	pod := m.protectedPod("web", annotated[0].Status.NodeRef.Name)
	m.annotate(annotated[0].Name, v1beta1.AnnotationReplace, "")
	m.awaitMachine(annotated[0].Name, "a replacement whose drain the budget blocks", func(machine *v1beta1.Machine) bool {
		return machine.DeletionTimestamp != nil && blockedBy(machine, pod.Name, "web")
	})

	t.Log("replace a machine that must not be disrupted yet")
	until := time.Now().Add(20 * time.Second).UTC().Truncate(time.Second)
	m.annotate(annotated[1].Name, v1beta1.AnnotationDoNotDisrupt, until.Format(time.RFC3339))
	m.annotate(annotated[1].Name, v1beta1.AnnotationReplace, "")
	m.liftBudget("web")
	m.awaitGone(annotated[0])
	m.awaitReport("annotated", fmt.Sprintf("%s has the annotation %s until %s", annotated[1].Name,
		v1beta1.AnnotationDoNotDisrupt, until.Format(time.RFC3339)))
	m.awaitReplaced("annotated", 3, annotated[1])

	t.Log("wait until the expired machines are replaced")
	m.await("no expired machine", func(machines []v1beta1.Machine) bool {
		return !hasMachine(machines, expiring[0].Name) && !hasMachine(machines, expiring[1].Name)
	})
	m.patchDeployment("expiring", `{"spec":{"template":{"spec":{"expireAfter":null}}}}`)

	left := m.awaitPool("annotated", 3, examples.SmallClass)
	if !hasMachine(left, annotated[2].Name) {
		t.Errorf("machine %s was replaced without an annotation", annotated[2].Name)
	}
	for _, b := range record.upTo(m.createBudget("end", "none", intstr.FromInt32(0))) {
		pool := b.Machine.Labels["pool"]
		serving := 0
		for _, other := range b.AllMachines {
			if other.Labels["pool"] == pool && !disrupted.IsDisrupted(other) && other.Status.Phase == v1beta1.MachineRunning {
				serving++
			}
		}
		t.Logf("machine %s of pool %s was disrupted while %d others were running", b.Machine.Name, pool, serving)
		if serving < sizes[pool] {
			t.Errorf("machine %s of pool %s was disrupted while only %d others were running, want at least %d",
				b.Machine.Name, pool, serving, sizes[pool])
		}
		if b.Machine.Name == annotated[1].Name && b.At.Before(until) {
			t.Errorf("machine %s was disrupted at %s, but must not be disrupted until %s", b.Machine.Name, b.At, until)
		}
		if age := b.At.Sub(b.Machine.CreationTimestamp.Time); pool == "expiring" && age < 53*time.Second {
			t.Errorf("machine %s was disrupted at the age of %s", b.Machine.Name, age)
		}
	}
	m.wantNoTwins()
}

// Budgets without any allowed disruption block the rollouts of two pools, while a third pool rolls out. Deleting one
// budget unblocks its pool. The other budget is invalid, because it was created without admission. The pool of this
// budget continues after the budget is corrected.
//
// Rules: bad-budget-allows-nothing, budget-status, denied-rollout-does-not-begin.
func TestDeletedAndInvalidDisruptionBudgets(t *testing.T) {
	t.Parallel()
	m, _ := startForDisruption(t)
	record := m.recordDisruptions()
	for _, pool := range []string{"limited", "invalid", "unlimited"} {
		m.createPool(pool, 3, surge(3))
	}
	m.awaitPools(2*time.Minute, 9, examples.SmallClass, "limited", "invalid", "unlimited")
	var nodes []string
	for _, machine := range m.awaitPool("limited", 3, examples.SmallClass) {
		nodes = append(nodes, machine.Status.NodeRef.Name)
	}
	m.protectedPods("web", nodes...)
	m.createBudget("limited", "limited", intstr.FromInt32(1))
	m.withoutWebhook()
	m.createBudget("invalid", "invalid", intstr.FromInt32(3), v1beta1.DisruptionWindow{Schedule: "at night",
		Duration: metav1.Duration{Duration: time.Hour}})
	m.awaitBudget("limited", "a valid budget", isValid)
	invalid := m.awaitBudget("invalid", "an invalid budget", func(b *v1beta1.MachineDisruptionBudget) bool {
		return meta.IsStatusConditionFalse(b.Status.Conditions, v1beta1.ConditionValid)
	})
	if a := invalid.Status.Allowed; a == nil || *a != 0 {
		t.Errorf("invalid budget: got %v allowed disruptions, want 0", a)
	}
	if c := meta.FindStatusCondition(invalid.Status.Conditions, v1beta1.ConditionValid); !strings.Contains(c.Message,
		"spec.windows[0].schedule") {
		t.Errorf("the condition does not name the field: %q", c.Message)
	}
	for _, pool := range []string{"limited", "invalid", "unlimited"} {
		m.rollOutPool(pool)
	}

	t.Log("one pool rolls out, one waits for an exhausted budget, and one for an invalid budget")
	m.awaitPool("unlimited", 3, examples.LargeClass)
	m.await("a blocked drain", func(machines []v1beta1.Machine) bool { return blockedDrains(machines) == 1 })
	m.awaitReport("invalid", "MachineDisruptionBudget invalid allows no disruption")
	for _, b := range record.soFar() {
		if b.Machine.Labels["pool"] == "invalid" {
			t.Errorf("machine %s was disrupted although its budget is invalid", b.Machine.Name)
		}
	}

	t.Log("the exhausted budget is deleted during the rollout")
	deleted := m.revisionOf(m.createBudget("mark", "none", intstr.FromInt32(0)))
	m.deleteBudget("limited")
	m.await("3 blocked drains", func(machines []v1beta1.Machine) bool { return blockedDrains(machines) == 3 })
	m.liftBudget("web")
	m.awaitPool("limited", 3, examples.LargeClass)

	t.Log("the invalid budget is corrected")
	corrected := m.revisionOf(m.createBudget("another-mark", "none", intstr.FromInt32(0)))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"windows":[]}}`))
	if err := m.control.Patch(context.Background(), invalid, patch); err != nil {
		t.Fatal(err)
	}
	m.awaitBudget("invalid", "the corrected budget to be valid", isValid)
	m.awaitPool("invalid", 3, examples.LargeClass)

	wantWithinBudgets(t, record.upTo(m.createBudget("end", "none", intstr.FromInt32(0))),
		disrupted.Budget{Name: "limited", Selects: ofPool("limited"), Allowed: atMost(1),
			InForce: func(b disrupted.DisruptionStart) bool { return b.Revision < deleted }},
		disrupted.Budget{Name: "invalid", Selects: ofPool("invalid"), Allowed: atMost(0),
			InForce: func(b disrupted.DisruptionStart) bool { return b.Revision < corrected }},
		disrupted.Budget{Name: "invalid, after the correction", Selects: ofPool("invalid"), Allowed: atMost(3)},
	)
	m.wantNoTwins()
}

func (m *machinist) createStandaloneSet(name string, replicas int32) {
	m.t.Helper()
	labels := map[string]string{"pool": name}
	s := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.Replicas, s.Spec.Selector.MatchLabels, s.Spec.Template.ObjectMeta.Labels = &replicas, labels, labels
	s.Spec.Template.Spec = v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: examples.SmallClass}, Version: "v1.36.3"}
	m.create(s)
}

func (m *machinist) annotate(machine, key, value string) {
	m.t.Helper()
	m.change(machine, func(machine *v1beta1.Machine) { metav1.SetMetaDataAnnotation(&machine.ObjectMeta, key, value) })
}

func (m *machinist) awaitGone(machine v1beta1.Machine) {
	m.t.Helper()
	m.await("the end of machine "+machine.Name, func(machines []v1beta1.Machine) bool {
		return !hasMachine(machines, machine.Name)
	})
}

func (m *machinist) awaitReplaced(pool string, n int, machine v1beta1.Machine) {
	m.t.Helper()
	m.awaitGone(machine)
	m.awaitPool(pool, n, examples.SmallClass)
}

func (m *machinist) awaitReport(deployment, text string) {
	m.t.Helper()
	what := fmt.Sprintf("deployment %s to report %q", deployment, text)
	env.Await(m.t, m.control, &v1beta1.MachineDeploymentList{}, what,
		func(l *v1beta1.MachineDeploymentList) (bool, string) {
			at := slices.IndexFunc(l.Items, func(d v1beta1.MachineDeployment) bool { return d.Name == deployment })
			conditions := l.Items[at].Status.Conditions
			return slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return strings.Contains(c.Message, text) }),
				fmt.Sprintf("%+v", conditions)
		}, client.InNamespace(namespace))
}

func (m *machinist) withoutWebhook() {
	m.t.Helper()
	configuration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: stack.Manager}}
	if err := m.control.Delete(context.Background(), configuration); err != nil {
		m.t.Fatalf("remove the webhook: %v", err)
	}
	bad := &v1beta1.MachineDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "try"}}
	bad.Spec.MaxDisrupted = intstr.FromInt32(1)
	bad.Spec.Windows = []v1beta1.DisruptionWindow{{Schedule: "never", Duration: metav1.Duration{Duration: time.Hour}}}
	eventually(m.t, "the API server calls no webhook", func() (bool, string) {
		err := m.control.Create(context.Background(), bad.DeepCopy(), client.DryRunAll)
		return err == nil, fmt.Sprint(err)
	})
}
