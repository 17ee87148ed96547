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

// Machines that are too old, and those for which people ask, are exchanged for others: the other one serves first, and
// the drain of the old one waits for its pods. A machine that must not be disrupted until a time stays until then, and
// goes by itself afterwards.
//
// Rules: exchange-makes-the-other-first, expired-machines-are-exchanged, exempt-from-disruption.
func TestDisruptionExchange(t *testing.T) {
	t.Parallel()
	m, _ := startForDisruption(t)
	record := m.recordDisruptions()
	sizes := map[string]int{"aged": 2, "asked": 3, "alone": 2}
	m.pool("aged", 2, func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.Spec.ExpireAfter = &metav1.Duration{Duration: time.Minute}
	})
	m.pool("asked", 3, nil)
	m.setAlone("alone", 2)
	aged := m.poolIs("aged", 2, examples.SmallClass)
	asked := m.poolIs("asked", 3, examples.SmallClass)
	alone := m.poolIs("alone", 2, examples.SmallClass)

	t.Log("a machine of a set without a deployment")
	m.annotate(alone[0].Name, v1beta1.AnnotationReplace, "")
	m.exchanged("alone", 2, alone[0])

	t.Log("a machine whose pods must not go yet")
	pod := m.protectedPod("web", asked[0].Status.NodeRef.Name)
	m.annotate(asked[0].Name, v1beta1.AnnotationReplace, "")
	m.awaitMachine(asked[0].Name, "an exchange whose drain the budget holds up", func(machine *v1beta1.Machine) bool {
		return machine.DeletionTimestamp != nil && blockedBy(machine, pod.Name, "web")
	})

	t.Log("a machine that must not be disrupted yet")
	until := time.Now().Add(20 * time.Second).UTC().Truncate(time.Second)
	m.annotate(asked[1].Name, v1beta1.AnnotationDoNotDisrupt, until.Format(time.RFC3339))
	m.annotate(asked[1].Name, v1beta1.AnnotationReplace, "")
	m.liftBudget("web")
	m.gone(asked[0])
	m.awaitReport("asked", fmt.Sprintf("%s has the annotation %s until %s", asked[1].Name, v1beta1.AnnotationDoNotDisrupt,
		until.Format(time.RFC3339)))
	m.exchanged("asked", 3, asked[1])

	t.Log("machines that are too old")
	m.await("other machines in the stead of the old ones", func(machines []v1beta1.Machine) bool {
		return !has(machines, aged[0].Name) && !has(machines, aged[1].Name)
	})
	m.patchDeployment("aged", `{"spec":{"template":{"spec":{"expireAfter":null}}}}`)

	left := m.poolIs("asked", 3, examples.SmallClass)
	if !has(left, asked[2].Name) {
		t.Errorf("machine %s was exchanged although nobody asked for that", asked[2].Name)
	}
	for _, b := range record.upTo(m.budget("end", "none", intstr.FromInt32(0))) {
		pool := b.Machine.Labels["pool"]
		serving := 0
		for _, other := range b.All {
			if other.Labels["pool"] == pool && !disrupted.Is(other) && other.Status.Phase == v1beta1.MachineRunning {
				serving++
			}
		}
		t.Logf("%s of %s went when %d others ran", b.Machine.Name, pool, serving)
		if serving < sizes[pool] {
			t.Errorf("machine %s of pool %s went when only %d others ran", b.Machine.Name, pool, serving)
		}
		if b.Machine.Name == asked[1].Name && b.At.Before(until) {
			t.Errorf("machine %s went at %s, and must not be disrupted until %s", b.Machine.Name, b.At, until)
		}
		if age := b.At.Sub(b.Machine.CreationTimestamp.Time); pool == "aged" && age < 53*time.Second {
			t.Errorf("machine %s went when it was %s old", b.Machine.Name, age)
		}
	}
	m.noTwins()
}

// Two pools are held by budgets that allow nothing, and a third one rolls beside them. One budget is deleted, and one
// was never understood, because it came past admission: when somebody corrects it, its pool goes on as well.
//
// Rules: bad-budget-allows-nothing, budget-status, denied-rollout-does-not-begin.
func TestDisruptionBudgetsThatEndOrCannotBeRead(t *testing.T) {
	t.Parallel()
	m, _ := startForDisruption(t)
	record := m.recordDisruptions()
	for _, pool := range []string{"freed", "unread", "beside"} {
		m.pool(pool, 3, surge(3))
	}
	m.poolsAre(2*time.Minute, 9, examples.SmallClass, "freed", "unread", "beside")
	var nodes []string
	for _, machine := range m.poolIs("freed", 3, examples.SmallClass) {
		nodes = append(nodes, machine.Status.NodeRef.Name)
	}
	m.protectedPods("web", nodes...)
	m.budget("freed", "freed", intstr.FromInt32(1))
	m.withoutWebhook()
	m.budget("unread", "unread", intstr.FromInt32(3), v1beta1.DisruptionWindow{Schedule: "at night",
		Duration: metav1.Duration{Duration: time.Hour}})
	m.awaitBudget("freed", "a budget that is understood", isValid)
	unread := m.awaitBudget("unread", "a budget that is not understood", func(b *v1beta1.MachineDisruptionBudget) bool {
		return meta.IsStatusConditionFalse(b.Status.Conditions, v1beta1.ConditionValid)
	})
	if a := unread.Status.Allowed; a == nil || *a != 0 {
		t.Errorf("the budget that is not understood allows %v, want 0", a)
	}
	if c := meta.FindStatusCondition(unread.Status.Conditions, v1beta1.ConditionValid); !strings.Contains(c.Message,
		"spec.windows[0].schedule") {
		t.Errorf("the condition does not name the field: %q", c.Message)
	}
	for _, pool := range []string{"freed", "unread", "beside"} {
		m.rollPool(pool)
	}

	t.Log("one pool rolls, one waits for a budget that is used up, and one for one that cannot be read")
	m.poolIs("beside", 3, examples.LargeClass)
	m.await("a drain that is held up", func(machines []v1beta1.Machine) bool { return blockedDrains(machines) == 1 })
	m.awaitReport("unread", "MachineDisruptionBudget unread allows no disruption")
	for _, b := range record.soFar() {
		if b.Machine.Labels["pool"] == "unread" {
			t.Errorf("machine %s was disrupted although its budget cannot be read", b.Machine.Name)
		}
	}

	t.Log("the budget that is used up is deleted in the middle of the rollout")
	deleted := m.revisionOf(m.budget("mark", "none", intstr.FromInt32(0)))
	m.deleteBudget("freed")
	m.await("drains of all", func(machines []v1beta1.Machine) bool { return blockedDrains(machines) == 3 })
	m.liftBudget("web")
	m.poolIs("freed", 3, examples.LargeClass)

	t.Log("the other one is corrected")
	corrected := m.revisionOf(m.budget("another-mark", "none", intstr.FromInt32(0)))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"windows":[]}}`))
	if err := m.control.Patch(context.Background(), unread, patch); err != nil {
		t.Fatal(err)
	}
	m.awaitBudget("unread", "a budget that is understood by now", isValid)
	m.poolIs("unread", 3, examples.LargeClass)

	within(t, record.upTo(m.budget("end", "none", intstr.FromInt32(0))),
		disrupted.Budget{Name: "freed", Selects: ofPool("freed"), Allowed: atMost(1),
			InForce: func(b disrupted.Begin) bool { return b.Revision < deleted }},
		disrupted.Budget{Name: "unread", Selects: ofPool("unread"), Allowed: atMost(0),
			InForce: func(b disrupted.Begin) bool { return b.Revision < corrected }},
		disrupted.Budget{Name: "unread, corrected", Selects: ofPool("unread"), Allowed: atMost(3)},
	)
	m.noTwins()
}

// setAlone creates a MachineSet without a deployment, of the small class.
func (m *machinist) setAlone(name string, replicas int32) {
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

// gone waits until a machine is.
func (m *machinist) gone(machine v1beta1.Machine) {
	m.t.Helper()
	m.await("the end of machine "+machine.Name, func(machines []v1beta1.Machine) bool {
		return !has(machines, machine.Name)
	})
}

// exchanged waits until a machine of a pool is gone, and the pool is complete without it.
func (m *machinist) exchanged(pool string, n int, machine v1beta1.Machine) {
	m.t.Helper()
	m.gone(machine)
	m.poolIs(pool, n, examples.SmallClass)
}

// awaitReport waits until a condition of a deployment, or what its rollout waits for, says something.
func (m *machinist) awaitReport(deployment, text string) {
	m.t.Helper()
	env.Await(m.t, m.control, &v1beta1.MachineDeploymentList{}, fmt.Sprintf("deployment %s says %q", deployment, text),
		func(l *v1beta1.MachineDeploymentList) (bool, string) {
			at := slices.IndexFunc(l.Items, func(d v1beta1.MachineDeployment) bool { return d.Name == deployment })
			conditions := l.Items[at].Status.Conditions
			return slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return strings.Contains(c.Message, text) }),
				fmt.Sprintf("%+v", conditions)
		}, client.InNamespace(namespace))
}

// withoutWebhook has the API server ask the manager no more about what is admitted, and returns when it does not.
func (m *machinist) withoutWebhook() {
	m.t.Helper()
	configuration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: stack.Manager}}
	if err := m.control.Delete(context.Background(), configuration); err != nil {
		m.t.Fatalf("remove the webhook: %v", err)
	}
	bad := &v1beta1.MachineDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "try"}}
	bad.Spec.MaxDisrupted = intstr.FromInt32(1)
	bad.Spec.Windows = []v1beta1.DisruptionWindow{{Schedule: "never", Duration: metav1.Duration{Duration: time.Hour}}}
	eventually(m.t, "the API server asks no webhook", func() (bool, string) {
		err := m.control.Create(context.Background(), bad.DeepCopy(), client.DryRunAll)
		return err == nil, fmt.Sprint(err)
	})
}
