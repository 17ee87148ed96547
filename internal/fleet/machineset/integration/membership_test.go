package integration

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/freshness"
)

func rawObject() *runtime.RawExtension {
	raw, _ := json.Marshal(map[string]string{"apiVersion": "sim.machinist.dev/v1beta1", "kind": "SimMachine"})
	return &runtime.RawExtension{Raw: raw}
}

func TestScaleSubresourceAndDeleteAnnotations(t *testing.T) {
	b := newBench(t)
	b.newSet(5)
	b.reconcile()
	b.runAll()
	b.clock.SetTime(b.clock.Now().Add(2 * time.Second))
	b.reconcile()

	scale := &autoscalingv1.Scale{}
	b.must(b.admin.SubResource("scale").Get(b.ctx, b.set(), scale))
	if scale.Spec.Replicas != 5 || scale.Status.Replicas != 5 {
		t.Errorf("scale %+v %+v", scale.Spec, scale.Status)
	}
	selector, err := labels.Parse(scale.Status.Selector)
	b.must(err)
	list := &v1beta1.MachineList{}
	b.must(b.admin.List(b.ctx, list, client.InNamespace(b.namespace), client.MatchingLabelsSelector{Selector: selector}))
	if len(list.Items) != 5 {
		t.Errorf("the scale's selector %q finds %d machines, want 5", scale.Status.Selector, len(list.Items))
	}

	// Cluster-autoscaler annotates machines before it lowers replicas.
	marked := []string{b.lives()[1].Name, b.lives()[3].Name}
	for _, name := range marked {
		b.changeMachine(name, func(m *v1beta1.Machine) {
			m.Annotations[v1beta1.AnnotationDeleteMachine] = time.Now().String()
		})
	}
	scale.Spec.Replicas = 3
	b.must(b.admin.SubResource("scale").Update(b.ctx, b.set(), client.WithSubResourceBody(scale)))
	b.reconcile()
	b.wantLives(3)
	for _, name := range marked {
		if b.machine(name).DeletionTimestamp.IsZero() {
			t.Errorf("%s was marked and not deleted", name)
		}
	}
}

// The cache shows the lower replicas, but not the earlier delete annotation.
//
// Rule: victims-from-fresh-view.
func TestVictimsAreChosenFromMachinesAsNewAsTheSpec(t *testing.T) {
	b := newBench(t)
	b.newSet(3)
	b.reconcile()
	b.runAll()
	stale := b.machines()
	version := b.machines()[2].ResourceVersion
	marked := stale[2].Name
	b.changeMachine(marked, func(m *v1beta1.Machine) { m.Annotations[v1beta1.AnnotationDeleteMachine] = "" })
	b.scale(2)

	b.hooks.machines = func(list *v1beta1.MachineList) { list.Items = stale }
	b.hooks.seen = func() string { return version }
	b.hooks.delete = func(c client.Client, m *v1beta1.Machine, options ...client.DeleteOption) error {
		b.hooks.machines, b.hooks.seen = nil, nil // The cache has the process's own writes.
		return c.Delete(b.ctx, m, options...)
	}
	b.took()
	b.reconcile() // The pass waits for the cache.
	b.wantCalls(map[string]int{"live list *v1beta1.MachineList NotOlderThan": 0, "delete": 0})
	b.reconcile()
	b.wantCalls(map[string]int{"live list *v1beta1.MachineList NotOlderThan": 1, "delete": 1})
	if b.machine(marked).DeletionTimestamp.IsZero() {
		t.Errorf("%s was marked and is not being deleted", marked)
	}
	b.wantLives(2)
}

// If this process has changed a set's replicas on the basis of its own cache, the set need not wait for a newer cache.
// After a change by another client, the set must wait.
//
// Rule: victims-from-fresh-view.
func TestADecisionOfThisProcessIsCarriedOutByTheCacheThatItWasMadeFrom(t *testing.T) {
	b := newBench(t)
	b.options.Decisions = &freshness.Decisions{}
	b.restart()
	b.newSet(4)
	b.reconcile()
	b.runAll()
	version := b.machines()[3].ResourceVersion
	b.hooks.seen = func() string { return version }
	b.scale(3)
	set := b.set()
	b.options.Decisions.Note(set.UID, set.Generation)
	b.took()
	b.reconcile()
	b.wantCalls(map[string]int{"live list *v1beta1.MachineList NotOlderThan": 0, "delete": 1})
	b.scale(2)
	b.reconcile()
	b.wantCalls(map[string]int{"live list *v1beta1.MachineList NotOlderThan": 0, "delete": 0})
	b.must(b.admin.Delete(b.ctx, b.set()))
	b.reconcile()
	if b.options.Decisions.Has(set.UID, set.Generation) {
		t.Error("the decision about a set that is gone is still known")
	}
}

// Rule: victims-from-fresh-view.
func TestStaleDeleteAnnotationsOfAnAutoscalerAreRemoved(t *testing.T) {
	b := newBench(t)
	b.newSet(2)
	b.reconcile()
	b.runAll()
	lives := b.lives()
	for i, value := range []string{b.clock.Now().Round(0).String() + " m=+17.000000001", "by hand"} {
		b.changeMachine(lives[i].Name, func(m *v1beta1.Machine) { m.Annotations[v1beta1.AnnotationDeleteMachine] = value })
	}
	b.clock.SetTime(b.clock.Now().Add(5 * time.Minute))
	if result := b.reconcile(); result.RequeueAfter != 10*time.Minute {
		t.Errorf("looks again after %s, want 10m", result.RequeueAfter)
	}
	b.clock.SetTime(b.clock.Now().Add(10 * time.Minute))
	b.reconcile()
	if _, there := b.machine(lives[0].Name).Annotations[v1beta1.AnnotationDeleteMachine]; there {
		t.Error("the autoscaler's mark is still there")
	}
	if _, there := b.machine(lives[1].Name).Annotations[v1beta1.AnnotationDeleteMachine]; !there {
		t.Error("a person's mark was dropped")
	}
}

// Rule: adopt-only-when-missing.
func TestAdoptionAndRelease(t *testing.T) {
	b := newBench(t)
	b.orphan("found")
	b.newSet(2)
	b.reconcile()
	b.wantLives(2)
	b.wantCalls(map[string]int{"create": 1, "patch": 1})
	found := b.machine("found")
	if !metav1.IsControlledBy(found, b.set()) || found.Labels[v1beta1.LabelMachineSet] != "workers" ||
		len(found.Finalizers) != 1 {
		t.Fatalf("adopted: %+v", found.ObjectMeta)
	}

	b.orphan("surplus")
	b.reconcile()
	b.wantLives(2)
	b.wantCondition(v1beta1.ConditionAdoptionSkipped, metav1.ConditionTrue, v1beta1.ReasonEnoughReplicas)
	b.must(b.admin.Delete(b.ctx, b.machine("surplus")))
	b.reconcile()
	b.wantCondition(v1beta1.ConditionAdoptionSkipped, metav1.ConditionFalse, v1beta1.ReasonNothingToAdopt)

	b.changeMachine("found", func(m *v1beta1.Machine) { m.Labels["pool"] = "others" })
	b.took()
	b.reconcile()
	b.wantCalls(map[string]int{"create": 1, "patch": 1, "delete": 0})
	b.wantLives(2)
	found = b.machine("found")
	if metav1.GetControllerOf(found) != nil || found.Labels[v1beta1.LabelMachineSet] != "" ||
		!found.DeletionTimestamp.IsZero() {
		t.Errorf("released: %+v", found.ObjectMeta)
	}
}

// In the API server, the first orphan is being deleted and the second is gone.
//
// Rule: adopt-only-when-missing.
func TestAdoptionReadsLive(t *testing.T) {
	b := newBench(t)
	b.orphan("leaving", func(m *v1beta1.Machine) { m.Finalizers = []string{v1beta1.MachineFinalizer} })
	b.orphan("gone")
	stale := b.machines()
	b.must(b.admin.Delete(b.ctx, b.machine("leaving")))
	b.must(b.admin.Delete(b.ctx, b.machine("gone")))
	b.hooks.machines = func(list *v1beta1.MachineList) {
		list.Items = append(list.Items[:0:0], append(b.lives(), stale...)...)
	}
	b.newSet(2)
	b.reconcile()
	b.wantLives(2)
	if metav1.GetControllerOf(b.machine("leaving")) != nil {
		t.Error("adopted a machine that is being deleted")
	}
}

func TestPreservedMachinesBelongToNoSet(t *testing.T) {
	b := newBench(t)
	b.orphan("preserved", func(m *v1beta1.Machine) {
		m.Annotations = map[string]string{v1beta1.AnnotationPreservedUntil: "2030-01-01T00:00:00Z"}
	})
	b.newSet(1)
	b.reconcile()
	if metav1.GetControllerOf(b.machine("preserved")) != nil {
		t.Error("adopted a preserved machine")
	}
	b.wantLives(1)
}

// Rule: labels-reach-machines-in-place.
func TestTemplateReachesMachinesInOnePatchEach(t *testing.T) {
	b := newBench(t)
	b.newSet(2, func(s *v1beta1.MachineSet) {
		s.Spec.Template.ObjectMeta.Labels["old"] = "x"
		s.Spec.Template.Spec.Node.Labels = map[string]string{"old": "x"}
	})
	b.reconcile()
	b.runAll()
	b.changeMachine(b.lives()[0].Name, func(m *v1beta1.Machine) { m.Labels["mine"] = "x" })
	b.changeSet(func(s *v1beta1.MachineSet) {
		s.Spec.Template.ObjectMeta.Labels = map[string]string{"pool": "workers", "new": "x"}
		s.Spec.Template.Spec.Node = v1beta1.NodeTemplate{Labels: map[string]string{"new": "x"},
			Taints: []corev1.Taint{{Key: "t", Effect: corev1.TaintEffectNoSchedule}}}
		s.Spec.Template.Spec.Timeouts.Drain = &metav1.Duration{Duration: time.Minute}
		s.Spec.Template.Spec.ClassRef.Name = "large"
		s.Spec.Template.Spec.Version = "v1.36.3"
	})
	b.took()
	b.reconcile()
	b.wantCalls(map[string]int{"patch": 2, "create": 0, "delete": 0})
	for i, m := range b.wantLives(2) {
		if m.Labels["old"] != "" || m.Labels["new"] != "x" || (m.Labels["mine"] == "x") != (i == 0) {
			t.Errorf("labels %v", m.Labels)
		}
		if m.Spec.Node.Labels["old"] != "" || m.Spec.Node.Labels["new"] != "x" || len(m.Spec.Node.Taints) != 1 ||
			m.Spec.Timeouts.Drain.Duration != time.Minute {
			t.Errorf("node %+v, timeouts %+v", m.Spec.Node, m.Spec.Timeouts)
		}
		if m.Spec.ClassRef.Name != "small" || m.Spec.Version != "" {
			t.Errorf("what makes another instance was propagated: class %s, version %q", m.Spec.ClassRef.Name, m.Spec.Version)
		}
	}
	b.reconcile()
	b.wantCalls(map[string]int{"patch": 0})
}

// Rule: remediation-budget.
func TestRemediationOfASetAlone(t *testing.T) {
	b := newBench(t)
	b.newSet(3)
	b.reconcile()
	b.runAll()
	b.reconcile()
	lives := b.lives()
	b.play(lives[0].Name, b.failed)
	b.play(lives[1].Name, func(m *v1beta1.Machine) {
		b.condition(m, v1beta1.ConditionRemediationRequested, metav1.ConditionTrue, v1beta1.ReasonBuiltInPolicy)
	})
	b.took()
	b.reconcile()
	b.wantCalls(map[string]int{"delete": 1, "create": 1})
	b.reconcile()
	b.wantCalls(map[string]int{"delete": 0, "create": 0}) // Machines are replaced one at a time.

	b.runAll()
	// A machine that is Ready again is not replaced during the grace period.
	b.clock.SetTime(b.clock.Now().Add(time.Minute))
	b.reconcile()
	b.wantCalls(map[string]int{"delete": 1, "create": 1})
	b.wantLives(3)

	// A replacement that fails is replaced too, each time after a longer delay.
	for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		for _, m := range b.lives() {
			if m.Status.Phase == "" {
				b.play(m.Name, b.failed)
			}
		}
		b.clock.SetTime(b.clock.Now().Add(2 * time.Second))
		result := b.reconcile()
		b.wantCalls(map[string]int{"delete": 0})
		b.wantCondition(v1beta1.ConditionScalingUp, metav1.ConditionFalse, v1beta1.ReasonBackingOff)
		if result.RequeueAfter != want-2*time.Second {
			t.Fatalf("looks again after %s, want %s", result.RequeueAfter, want-2*time.Second)
		}
		b.clock.SetTime(b.clock.Now().Add(result.RequeueAfter))
		b.reconcile()
		b.wantCalls(map[string]int{"delete": 1, "create": 1})
	}

	b.runAll()
	b.reconcile()
	b.play(b.lives()[0].Name, b.failed)
	b.took()
	b.reconcile()
	b.wantCalls(map[string]int{"delete": 1, "create": 1})
}

// The cache shows a failed machine that has recovered.
func TestRemediationReadsLive(t *testing.T) {
	b := newBench(t)
	b.newSet(1)
	b.reconcile()
	b.runAll()
	name := b.lives()[0].Name
	b.hooks.machines = func(list *v1beta1.MachineList) {
		for i := range list.Items {
			b.failed(&list.Items[i])
		}
	}
	b.took()
	b.reconcile()
	b.wantCalls(map[string]int{"delete": 0, "create": 0})
	if !b.machine(name).DeletionTimestamp.IsZero() {
		t.Error("a machine that runs was deleted on grounds of its health")
	}
}

// Rule: remediation-budget.
func TestRemediationBudgetIsTheDeployments(t *testing.T) {
	b := newBench(t)
	d := &v1beta1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "workers"},
		Spec: v1beta1.MachineDeploymentSpec{
			Replicas:    ptr.To[int32](6),
			Selector:    metav1.LabelSelector{MatchLabels: map[string]string{"pool": "workers"}},
			Template:    v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"pool": "workers"}}, Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}}},
			Strategy:    v1beta1.DeploymentStrategy{RollingUpdate: &v1beta1.RollingUpdate{MaxSurge: ptr.To(intstr.FromInt32(2))}},
			Remediation: v1beta1.MachineRemediation{MaxInFlight: ptr.To(intstr.FromString("50%"))},
		},
	}
	b.must(b.admin.Create(b.ctx, d))
	owned := func(s *v1beta1.MachineSet) {
		s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d,
			v1beta1.GroupVersion.WithKind("MachineDeployment"))}
	}
	b.newSet(6, owned)
	b.reconcile()
	b.runAll()
	b.reconcile()
	for _, m := range b.lives()[:5] {
		b.play(m.Name, b.failed)
	}
	other := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "other"}, Spec: b.set().Spec}
	other.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": "other"}}
	other.Spec.Template.ObjectMeta.Labels = map[string]string{"pool": "other"}
	other.Spec.Replicas = ptr.To[int32](2)
	owned(other)
	b.must(b.admin.Create(b.ctx, other))
	for i := range 2 {
		b.orphan(fmt.Sprintf("other-%d", i), func(m *v1beta1.Machine) {
			m.Labels = map[string]string{"pool": "other"}
			m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(other,
				v1beta1.GroupVersion.WithKind("MachineSet"))}
		})
	}
	b.took()
	b.reconcile()
	b.wantCalls(map[string]int{"delete": 1, "create": 1}) // 50% of 6, less 2.
}

// Rule vanished-replaced-at-once: a set that loses all its spot instances replaces them all at once.
func TestVanishedMachinesAreReplacedTogether(t *testing.T) {
	b := newBench(t)
	b.newSet(12)
	b.reconcile()
	b.runAll()
	b.reconcile()
	for _, m := range b.lives()[:8] {
		b.play(m.Name, b.lost)
	}
	b.took()
	b.reconcile()
	b.wantCalls(map[string]int{"delete": 8, "create": 8})
}

// Rule: remediation-budget-of-owner.
func TestASetAloneHasABudgetOfItsOwn(t *testing.T) {
	b := newBench(t)
	b.newSet(6, func(s *v1beta1.MachineSet) { s.Spec.Remediation.MaxInFlight = ptr.To(intstr.FromString("50%")) })
	b.reconcile()
	b.runAll()
	b.reconcile()
	for _, m := range b.lives()[:5] {
		b.play(m.Name, b.failed)
	}
	b.took()
	b.reconcile()
	b.wantCalls(map[string]int{"delete": 3, "create": 3})
}

// Rule: rejected-configuration-stops-creation.
func TestRefusedConfigurationsAreNotRepeated(t *testing.T) {
	b := newBench(t)
	b.newSet(3)
	b.reconcile()
	for _, m := range b.lives() {
		b.play(m.Name, func(m *v1beta1.Machine) {
			m.Status.Phase = v1beta1.MachinePending
			b.condition(m, v1beta1.ConditionLaunched, metav1.ConditionFalse, v1beta1.ReasonInvalidConfiguration)
		})
	}
	b.scale(10)
	b.reconcile()
	b.wantLives(3)
	b.wantCondition(v1beta1.ConditionReplicaFailure, metav1.ConditionTrue, v1beta1.ReasonInvalidConfiguration)
	if failed := b.set().Status.FailedMachines; len(failed) != 3 {
		t.Errorf("failed machines %+v", failed)
	}
}

// Rule: available-after-min-ready.
func TestAvailabilityCountsMinReadySeconds(t *testing.T) {
	b := newBench(t)
	b.clock.SetTime(b.clock.Now().Truncate(time.Second))
	b.newSet(1, func(s *v1beta1.MachineSet) { s.Spec.MinReadySeconds = 60 })
	b.reconcile()
	b.runAll()
	b.clock.SetTime(b.clock.Now().Add(20 * time.Second))
	if result := b.reconcile(); result.RequeueAfter != 40*time.Second {
		t.Errorf("looks again after %s, want 40s", result.RequeueAfter)
	}
	if s := b.set().Status; s.ReadyReplicas != 1 || s.AvailableReplicas != 0 {
		t.Errorf("status %+v", s)
	}
	b.clock.SetTime(b.clock.Now().Add(40 * time.Second))
	b.reconcile()
	if s := b.set().Status; s.AvailableReplicas != 1 {
		t.Errorf("status %+v", s)
	}
}

// Rule: status-writes-spaced.
func TestCountsAreWrittenEveryTwoSecondsAtMost(t *testing.T) {
	b := newBench(t)
	b.newSet(20)
	b.reconcile()
	b.took()
	for i, m := range b.lives() {
		if i == 10 {
			b.clock.SetTime(b.clock.Now().Add(2 * time.Second))
		}
		b.play(m.Name, b.running)
		result := b.reconcile()
		if i == 9 && (result.RequeueAfter <= 0 || result.RequeueAfter > 2*time.Second) {
			t.Errorf("the last count would not be written: looks again after %s", result.RequeueAfter)
		}
	}
	// The status is written once after two seconds, and once because MachinesReady becomes True.
	b.wantCalls(map[string]int{"patch status": 2})
	if s := b.set().Status; s.ReadyReplicas != 20 {
		t.Errorf("status %+v", s)
	}
}
