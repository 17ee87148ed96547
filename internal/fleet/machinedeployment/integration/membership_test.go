package integration

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
)

func keyed(key client.ObjectKey) reconcile.Request { return reconcile.Request{NamespacedName: key} }

// Rule: labels-of-owned-set-restored.
func TestLabelsOfAnOwnedSetAreRestored(t *testing.T) {
	b := newBench(t)
	b.create(3)
	b.settle()
	b.change(class("b"))
	b.settle()
	before := b.sets()
	for _, name := range []string{"a", "b"} { // The set a is kept only for a rollback.
		b.changeSet(name, func(s *v1beta1.MachineSet) { s.Labels = nil })
	}
	b.took()
	b.reconcile()
	b.wantCalls(patchSet, patchSet, patchSet) // The last patch restores the autoscaler's label of the set in use.
	for name, set := range b.sets() {
		if !metav1.IsControlledBy(set, b.deployment()) || set.Labels["app"] != "web" ||
			set.Labels[v1beta1.LabelTemplateHash] != before[name].Labels[v1beta1.LabelTemplateHash] {
			t.Errorf("set %s has the labels %v and the owners %v", name, set.Labels, set.OwnerReferences)
		}
	}
	b.settle()
	b.wantReplicas(map[string]int32{"a": 0, "b": 3})
}

func TestASetThatLostItsOwnerIsAdopted(t *testing.T) {
	b := newBench(t)
	b.create(3)
	b.settle()
	b.changeSet("a", func(s *v1beta1.MachineSet) { s.OwnerReferences = nil })
	b.restart() // in production, a watch event triggers this
	b.took()
	b.reconcile()
	b.wantCalls(getItself, listSets, getItself, patchSet, listMachine)
	if set := b.sets()["a"]; !metav1.IsControlledBy(set, b.deployment()) {
		t.Error("a set that matches is not adopted")
	}
	b.settle()
	b.wantReplicas(map[string]int32{"a": 3})
}

func TestADeploymentThatWasReplacedMeanwhileAdoptsNothing(t *testing.T) {
	b := newBench(t)
	b.create(0)
	orphan := &v1beta1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "orphan", Labels: map[string]string{"app": "web"}},
		Spec: v1beta1.MachineSetSpec{Replicas: ptr.To[int32](0),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"app": "web"}},
				Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "x"}}}},
	}
	b.must(b.api.Create(b.ctx, orphan))
	b.hooks.deployment = func(d *v1beta1.MachineDeployment) { d.UID = "of-a-former-one" }
	if result, err := b.try("web"); err != nil || result.RequeueAfter == 0 {
		t.Errorf("it is reconciled again in %s: %v", result.RequeueAfter, err)
	}
	if set := b.sets()["x"]; len(set.OwnerReferences) != 0 {
		t.Errorf("the set has the owners %v", set.OwnerReferences)
	}
}

// Rule: owners-decide-shared-selector.
func TestTwoDeploymentsWithOneSelectorDoNotFight(t *testing.T) {
	b := newBench(t)
	b.create(3)
	b.settle()
	other := deployment(b.namespace, 2, class("o"))
	other.Name = "other"
	b.must(b.api.Create(b.ctx, other))
	for range 3 {
		_, err := b.try("other")
		b.must(err)
		b.play()
		b.reconcile()
	}
	b.wantReplicas(map[string]int32{"a": 3, "o": 2})
	b.settle()
	for class, owner := range map[string]string{"a": "web", "o": "other"} {
		if got := metav1.GetControllerOf(b.sets()[class]).Name; got != owner {
			t.Errorf("the set of class %s belongs to %s, expected %s", class, got, owner)
		}
	}
}

func TestANameThatIsTakenMakesAnotherHash(t *testing.T) {
	b := newBench(t)
	b.create(3)
	b.settle()
	b.change(class("b"))
	ofClass := machinedeployment.Template{Spec: &v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "b"}}}
	taken := machinedeployment.TemplateHash(ofClass,
		metav1.Time{}.Time, 0)
	b.must(b.api.Create(b.ctx, &v1beta1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "web-" + taken},
		Spec: v1beta1.MachineSetSpec{Replicas: ptr.To[int32](0),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}},
			Template: v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"x": "y"}},
				Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "x"}}}},
	}))
	b.reconcile()
	if n := b.deployment().Status.CollisionCount; n == nil || *n != 1 {
		t.Fatalf("the collision is not counted: %v", n)
	}
	b.reconcile()
	b.wantReplicas(map[string]int32{"a": 3, "b": 1, "x": 0})
	b.play()
	b.settle()
	b.wantReplicas(map[string]int32{"a": 0, "b": 3, "x": 0})
}

func TestAFormerSetOfThatRevisionHasToBeGoneFirst(t *testing.T) {
	b := newBench(t)
	b.create(3)
	b.settle()
	b.changeSet("a", func(s *v1beta1.MachineSet) { s.Finalizers = []string{"example.com/hold"} })
	b.must(b.api.Delete(b.ctx, b.sets()["a"]))
	b.took()
	b.reconcile()
	b.wantCalls(patchStatus)
	if n := b.deployment().Status.CollisionCount; n != nil {
		t.Errorf("that counts as a collision: %d", *n)
	}
	b.changeSet("a", func(s *v1beta1.MachineSet) { s.Finalizers = nil })
	b.reconcile()
	if set := b.sets()["a"]; set == nil || !set.DeletionTimestamp.IsZero() {
		t.Errorf("there is no new set: %v", set)
	}
}

// Another version of Machinist may compute other hashes or set names, which must not cause a rollout.
//
// Rule: only-template-changes-roll.
func TestAnUpgradeRollsNothing(t *testing.T) {
	b := newBench(t)
	b.create(3)
	b.settle()
	old := b.sets()["a"]
	b.must(b.api.Delete(b.ctx, old))
	old.ResourceVersion, old.UID = "", ""
	old.Name = "web-hashed0"
	old.Annotations[v1beta1.AnnotationHashVersion] = "0"
	old.Spec.Selector.MatchLabels[v1beta1.LabelTemplateHash] = "hashed0"
	old.Spec.Template.ObjectMeta.Labels[v1beta1.LabelTemplateHash] = "hashed0"
	old.Labels[v1beta1.LabelTemplateHash] = "hashed0"
	b.must(b.api.Create(b.ctx, old))
	b.restart()
	b.settle()
	if sets := b.sets(); len(sets) != 1 || sets["a"].Name != "web-hashed0" ||
		sets["a"].Labels[v1beta1.LabelTemplateHash] != "hashed0" {
		t.Errorf("sets are %v", sets)
	}
	b.wantReplicas(map[string]int32{"a": 3})
}

// Rule: only-template-changes-roll.
func TestWhatDoesNotRollReachesOldAndNewSetsInPlace(t *testing.T) {
	b := newBench(t)
	b.create(3, func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.ObjectMeta.Labels["gone"] = "soon"
		d.Spec.Template.ObjectMeta.Annotations = map[string]string{"note": "1"}
	})
	b.settle()
	b.change(class("b"))
	b.reconcile()
	b.play()
	b.change(func(d *v1beta1.MachineDeployment) {
		delete(d.Spec.Template.ObjectMeta.Labels, "gone")
		d.Spec.Template.ObjectMeta.Labels["new"] = "yes"
		d.Spec.Template.ObjectMeta.Annotations = nil
		d.Spec.Template.Spec.LifecycleHooks.PreDrain = []v1beta1.LifecycleHook{{Name: "backup.example.com", Owner: "backup"}}
		d.Spec.DeletePolicy = v1beta1.DeleteOldest
	})
	b.reconcile()
	sets := b.sets()
	if len(sets) != 2 {
		t.Fatalf("there are %d sets, expected 2: nothing of this rolls", len(sets))
	}
	for class, set := range sets {
		template := set.Spec.Template
		if _, there := template.ObjectMeta.Labels["gone"]; there || template.ObjectMeta.Labels["new"] != "yes" ||
			len(template.ObjectMeta.Annotations) != 0 ||
			len(template.Spec.LifecycleHooks.PreDrain) != 1 || template.Spec.ClassRef.Name != class ||
			set.Spec.DeletePolicy != v1beta1.DeleteOldest {
			t.Errorf("set of class %s: %+v, %s", class, template, set.Spec.DeletePolicy)
		}
		if _, there := set.Labels["gone"]; there || set.Labels["new"] != "yes" {
			t.Errorf("set of class %s has the labels %v", class, set.Labels)
		}
	}
}

func TestAFrozenDeploymentShrinksOnly(t *testing.T) {
	b := newBench(t)
	b.create(5)
	b.settle()
	b.change(func(d *v1beta1.MachineDeployment) {
		d.Labels = map[string]string{v1beta1.LabelFreeze: "true"}
		class("b")(d)
		replicas(8)(d)
	})
	b.reconcile()
	b.wantReplicas(map[string]int32{"a": 5})
	b.wantCondition(v1beta1.ConditionFrozen, metav1.ConditionTrue, v1beta1.ReasonFrozenByLabel)
	b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionUnknown, v1beta1.ReasonFrozen)
	b.change(replicas(2))
	b.reconcile()
	b.wantReplicas(map[string]int32{"a": 2})
	b.play()
	b.change(func(d *v1beta1.MachineDeployment) { d.Labels = nil })
	b.settle()
	b.wantReplicas(map[string]int32{"a": 0, "b": 2})
	b.wantCondition(v1beta1.ConditionFrozen, metav1.ConditionFalse, v1beta1.ReasonThawed)
}

func TestStoppedProcessAddsAndReplacesNothing(t *testing.T) {
	b := newBench(t)
	reason := ""
	b.options.StopReason = func() (string, string) { return reason, "The target cluster is unreachable." }
	b.restart()
	b.create(3)
	b.settle()
	reason = v1beta1.ReasonControlPlaneUnreachable
	b.reconcile()
	b.wantCalls()
	b.change(class("b"))
	result := b.reconcile()
	b.wantReplicas(map[string]int32{"a": 3})
	b.wantCondition(v1beta1.ConditionFrozen, metav1.ConditionTrue, v1beta1.ReasonControlPlaneUnreachable)
	if result.RequeueAfter <= 0 || result.RequeueAfter > 10*time.Second {
		t.Errorf("looks again in %s", result.RequeueAfter)
	}
	reason = ""
	b.settle()
	b.wantReplicas(map[string]int32{"a": 0, "b": 3})
	b.wantCondition(v1beta1.ConditionFrozen, metav1.ConditionFalse, v1beta1.ReasonThawed)
}

// Rules: manual-selection-updates, waits-for-selection.
func TestInPlaceBySelectionWaitsForPeople(t *testing.T) {
	b := newBench(t)
	registry := prometheus.NewRegistry()
	metrics, err := machinedeployment.NewMetrics(registry, client.NewNamespacedClient(b.api, b.namespace))
	b.must(err)
	b.options.Metrics = metrics
	b.restart()
	b.create(3, strategy(v1beta1.StrategyInPlace), func(d *v1beta1.MachineDeployment) {
		d.Spec.Strategy.InPlace = &v1beta1.InPlaceUpdate{Orchestration: v1beta1.OrchestrationManual}
	})
	b.settle()
	b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionTrue, v1beta1.ReasonNewMachineSetAvailable)
	b.change(class("b"))
	b.settle()
	b.wantReplicas(map[string]int32{"a": 3, "b": 0})
	b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionUnknown, v1beta1.ReasonWaitingForSelection)
	b.wantCondition(v1beta1.ConditionRollingOut, metav1.ConditionTrue, v1beta1.ReasonWaitingForSelection)
	b.pass(24 * time.Hour)
	b.settle()
	b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionUnknown, v1beta1.ReasonWaitingForSelection)
	b.change(replicas(5))
	b.reconcile() // The sets want two more machines, which no controller creates here.
	b.pass(time.Hour)
	b.reconcile()
	b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionFalse, v1beta1.ReasonProgressDeadlineExceeded)
	if got := stuck(t, registry); !slices.Equal(got, []string{b.namespace + "/web " +
		v1beta1.ReasonProgressDeadlineExceeded}) {
		t.Errorf("stuck rollouts are %v", got)
	}
	b.settle()
	b.wantReplicas(map[string]int32{"a": 3, "b": 2})
	b.change(strategy(v1beta1.StrategyRollingUpdate))
	b.settle()
	b.wantReplicas(map[string]int32{"a": 0, "b": 5})
	if got := stuck(t, registry); len(got) != 0 {
		t.Errorf("stuck rollouts are %v", got)
	}
}

func stuck(t *testing.T, registry *prometheus.Registry) []string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, family := range families {
		if family.GetName() != "machinist_rollout_stuck" {
			continue
		}
		for _, m := range family.Metric {
			found = append(found, m.Label[0].GetValue()+" "+m.Label[1].GetValue())
		}
	}
	return found
}
