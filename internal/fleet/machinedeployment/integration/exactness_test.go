package integration

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
)

const (
	createSet   = "create MachineSet"
	patchSet    = "patch MachineSet"
	deleteSet   = "delete MachineSet"
	patchStatus = "patch status of MachineDeployment"
	getItself   = "live get MachineDeployment"
	listSets    = "live list MachineSetList"
	listMachine = "live list MachineList"
)

// Rule: settled-deployment-no-write.
func TestASettledDeploymentWritesNothing(t *testing.T) {
	b := newBench(t)
	b.create(3)
	b.settle()
	b.wantReplicas(map[string]int32{"a": 3})
	b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionTrue, v1beta1.ReasonNewMachineSetAvailable)
	for range 3 {
		if result := b.reconcile(); result.RequeueAfter != 0 {
			t.Errorf("looks again in %s", result.RequeueAfter)
		}
	}
	b.wantCalls()
	b.restart()
	b.reconcile()
	b.wantCalls(getItself, listSets, listMachine)
}

func TestOnePatchForEachSetAndOneForTheStatus(t *testing.T) {
	b := newBench(t)
	b.create(3)
	b.reconcile()
	b.wantCalls(getItself, listSets, getItself, createSet, patchStatus) // without a set, no machines are listed
	b.settle()
	b.change(func(d *v1beta1.MachineDeployment) {
		replicas(5)(d)
		d.Spec.MinReadySeconds = 1
		d.Spec.Template.ObjectMeta.Labels["tier"] = "gold"
		d.Spec.Template.Spec.Node.Labels = map[string]string{"disk": "fast"}
	})
	b.reconcile()
	b.wantCalls(patchSet, patchStatus)
	b.wantReplicas(map[string]int32{"a": 5})
	b.settle()
	b.change(class("b"))
	b.reconcile()
	b.wantCalls(patchSet, getItself, createSet, patchStatus) // the old set is declared outdated
	b.wantReplicas(map[string]int32{"a": 5, "b": 1})
	if events := b.events.took(); !slices.Equal(events, []string{"RevisionCreated", "RolloutComplete",
		"RevisionCreated"}) {
		t.Errorf("events are %v", events)
	}
}

// Rule: first-decision-from-live-lists. A cache may lack the last writes of the previous process.
func TestFirstDecisionIsMadeOnLiveLists(t *testing.T) {
	b := newBench(t)
	b.create(3, rolling("0", "1"))
	b.settle()
	b.change(class("b"))
	b.reconcile()
	b.wantReplicas(map[string]int32{"a": 2, "b": 0})
	b.play()

	// The cache still shows 3 machines and 3 replicas of class a.
	stale := b.sets()["a"].DeepCopy()
	b.hooks.sets = func(l *v1beta1.MachineSetList) {
		for i := range l.Items {
			if l.Items[i].UID == stale.UID {
				l.Items[i].Spec.Replicas = ptr.To[int32](3)
			}
		}
	}
	b.hooks.machines = func(l *v1beta1.MachineList) {
		if len(l.Items) == 2 {
			extra := *l.Items[0].DeepCopy()
			extra.Name, extra.UID = "gone", "gone"
			l.Items = append(l.Items, extra)
		}
	}
	b.restart()
	b.took()
	b.reconcile()
	b.wantCalls(getItself, listSets, listMachine, patchSet, patchStatus)
	b.wantReplicas(map[string]int32{"a": 2, "b": 1})
}

// Rule: first-decision-from-live-lists.
func TestAfterAWriteOfUnknownOutcomeItDecidesOnLiveLists(t *testing.T) {
	for name, failure := range map[string]error{
		"timeout":         apierrors.NewTimeoutError("late", 1),
		"lost connection": errors.New("connection reset by peer"),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.create(3)
			b.settle()
			b.change(replicas(5))
			b.hooks.afterPatch = func(error) error { return failure }
			if _, err := b.try("web"); !errors.Is(err, failure) {
				t.Fatalf("the error is %v, expected %v", err, failure)
			}
			b.hooks.afterPatch = nil
			b.took()
			b.reconcile()
			b.wantCalls(getItself, listSets, listMachine, patchStatus) // the patch had taken effect
			b.wantReplicas(map[string]int32{"a": 5})
			b.play()
			b.reconcile()
			b.wantCalls(patchStatus)
		})
	}
}

// Rule: gone-object-no-error.
func TestADeploymentThatIsDeletedMeanwhileIsNoError(t *testing.T) {
	b := newBench(t)
	b.create(3)
	b.settle()
	b.change(replicas(5))
	b.hooks.beforePatch = func(*v1beta1.MachineSet) {
		b.hooks.beforePatch = nil
		b.must(b.api.Delete(b.ctx, b.deployment(), client.PropagationPolicy(metav1.DeletePropagationOrphan)))
		d := b.deployment()
		d.Finalizers = nil // as the garbage collector does
		b.must(b.api.Update(b.ctx, d))
	}
	if _, err := b.try("web"); err != nil {
		t.Errorf("the deployment was deleted before its status was written: %v", err)
	}
}

func TestAConflictingWriteIsNotOverwritten(t *testing.T) {
	b := newBench(t)
	b.create(3)
	b.settle()
	b.change(replicas(5))
	b.hooks.beforePatch = func(*v1beta1.MachineSet) {
		b.hooks.beforePatch = nil
		b.changeSet("a", func(s *v1beta1.MachineSet) { s.Spec.Replicas = ptr.To[int32](4) })
	}
	if result := b.reconcile(); result.RequeueAfter == 0 {
		t.Error("a conflict is not followed by another look")
	}
	b.wantReplicas(map[string]int32{"a": 4})
	if d := b.deployment(); d.Status.ObservedGeneration == d.Generation {
		t.Error("the generation is said to be acted upon, and was not")
	}
	b.reconcile()
	b.wantReplicas(map[string]int32{"a": 5})
}

// Rule: surge-and-unavailable-kept. A set whose replicas were lowered may still be about to create the missing
// machines.
func TestCapacityIsUsedOnlyOnceTheSetHasObservedItsSpec(t *testing.T) {
	b := newBench(t)
	b.create(3, strategy(v1beta1.StrategyOnDelete))
	b.settle()
	b.change(class("b"))
	b.reconcile()
	list := &v1beta1.MachineList{}
	b.must(b.api.List(b.ctx, list, client.InNamespace(b.namespace)))
	b.must(b.api.Delete(b.ctx, &list.Items[0]))
	b.reconcile()
	b.wantReplicas(map[string]int32{"a": 2, "b": 0})
	b.reconcile()
	b.wantReplicas(map[string]int32{"a": 2, "b": 0})
	b.playSet(b.sets()["a"], nil)
	b.reconcile()
	b.wantReplicas(map[string]int32{"a": 2, "b": 1})
}

// Rule: recreate-and-on-delete.
func TestOldSetsMakeNothingWithOnDelete(t *testing.T) {
	b := newBench(t)
	b.create(3, strategy(v1beta1.StrategyOnDelete))
	b.settle()
	stopped := func() map[string]bool {
		found := map[string]bool{}
		for class, set := range b.sets() {
			_, found[class] = set.Annotations[v1beta1.AnnotationNoCreate]
		}
		return found
	}
	for _, step := range []struct {
		what   string
		change func(*v1beta1.MachineDeployment)
		want   map[string]bool
	}{
		{"a new template", class("b"), map[string]bool{"a": true, "b": false}},
		{"paused", func(d *v1beta1.MachineDeployment) { d.Spec.Paused = true }, map[string]bool{"a": false, "b": false}},
		{"resumed", func(d *v1beta1.MachineDeployment) { d.Spec.Paused = false }, map[string]bool{"a": true, "b": false}},
		{"the old template", class("a"), map[string]bool{"a": false, "b": false}},
		{"the new one, and another strategy", func(d *v1beta1.MachineDeployment) {
			class("b")(d)
			strategy(v1beta1.StrategyInPlace)(d)
			d.Spec.Strategy.InPlace = &v1beta1.InPlaceUpdate{Orchestration: v1beta1.OrchestrationManual}
		}, map[string]bool{"a": true, "b": false}},
	} {
		b.change(step.change)
		b.settle()
		if got := stopped(); !maps.Equal(got, step.want) {
			t.Errorf("%s: sets that may make no machines are %v, expected %v", step.what, got, step.want)
		}
	}
}

func TestNumbersAreReportedOncePerSecond(t *testing.T) {
	b := newBench(t)
	b.create(50)
	b.settle()
	names := &v1beta1.MachineList{}
	b.must(b.api.List(b.ctx, names, client.InNamespace(b.namespace)))
	key := types.NamespacedName{Namespace: b.namespace, Name: "web"}
	writes, last := 0, time.Duration(0)
	for i := range 20 {
		m := &names.Items[i]
		was := m.DeepCopy()
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionUpToDate,
			Status: metav1.ConditionTrue,
			Reason: v1beta1.ReasonUpToDate, LastTransitionTime: metav1.NewTime(b.clock.Now())})
		b.must(b.api.Status().Patch(b.ctx, m, client.MergeFrom(was)))
		b.pass(100 * time.Millisecond)
		result, err := b.r.Reconcile(b.ctx, keyed(key))
		b.must(err)
		writes += len(b.took())
		last = result.RequeueAfter
	}
	if writes < 2 || writes > 3 {
		t.Errorf("%d writes for 20 changes in 2 seconds, expected 2 or 3", writes)
	}
	if d := b.deployment(); d.Status.UpToDateReplicas != 20 {
		if last <= 0 || last > time.Second {
			t.Fatalf("%d of 20 changes are reported, and the rest in %s", d.Status.UpToDateReplicas, last)
		}
		b.pass(last)
		_, err := b.r.Reconcile(b.ctx, keyed(key))
		b.must(err)
		if d := b.deployment(); d.Status.UpToDateReplicas != 20 {
			t.Errorf("%d of 20 changes are reported in the end", d.Status.UpToDateReplicas)
		}
	}
}

// Rule: progress-deadline-reported.
func TestADeadlineThatPassesIsReported(t *testing.T) {
	b := newBench(t)
	b.create(3, func(d *v1beta1.MachineDeployment) {
		d.Spec.ProgressDeadline = &metav1.Duration{Duration: 5 * time.Minute}
	})
	b.settle()
	b.events.took()
	b.change(class("b"))
	b.reconcile()
	b.playSet(b.sets()["b"], func(*v1beta1.Machine) {}) // a machine that does not come up
	b.reconcile()
	result := b.reconcile()
	if result.RequeueAfter < 4*time.Minute || result.RequeueAfter > 5*time.Minute {
		t.Fatalf("looks again in %s, expected about 5m", result.RequeueAfter)
	}
	b.pass(result.RequeueAfter)
	b.reconcile()
	c := b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionFalse, v1beta1.ReasonProgressDeadlineExceeded)
	if !strings.Contains(c.Message, "0 of 1 machines of the new revision are available") {
		t.Errorf("the message does not say what is waited for: %s", c.Message)
	}
	if events := b.events.took(); !slices.Equal(events,
		[]string{"RevisionCreated", v1beta1.ReasonProgressDeadlineExceeded}) {
		t.Errorf("events are %v", events)
	}
	b.took()
	b.restart()
	b.reconcile()
	b.wantCalls(getItself, listSets, listMachine)
	b.play()
	b.playSet(b.sets()["b"], nil)
	b.change(class("a"))
	b.settle()
	b.wantReplicas(map[string]int32{"a": 3, "b": 0})
}

// Rules: admitted-bad-object-harmless, reserved-keys-refused.
func TestInputThatTheAPIWouldRefuseHarmsNothing(t *testing.T) {
	for name, test := range map[string]struct {
		spoil  func(*v1beta1.MachineDeployment)
		reason string
	}{
		"no selector": {func(d *v1beta1.MachineDeployment) { d.Spec.Selector = metav1.LabelSelector{} },
			machinedeployment.ReasonInvalidSelector},
		"malformed selector": {func(d *v1beta1.MachineDeployment) {
			d.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Maybe"}}
		}, machinedeployment.ReasonInvalidSelector},
		"selector by what its sets get": {func(d *v1beta1.MachineDeployment) {
			d.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: v1beta1.LabelTemplateHash,
				Operator: metav1.LabelSelectorOpDoesNotExist}}
		}, machinedeployment.ReasonInvalidSelector},
		"selector by a hash of its own": {func(d *v1beta1.MachineDeployment) {
			d.Spec.Selector.MatchLabels = map[string]string{v1beta1.LabelTemplateHash: "x"}
		}, machinedeployment.ReasonInvalidSelector},
		"template that requests remediation of its machines": {func(d *v1beta1.MachineDeployment) {
			d.Spec.Template.ObjectMeta.Annotations = map[string]string{v1beta1.AnnotationRemediate: ""}
		}, v1beta1.ReasonInvalidConfiguration},
		"template of another provider": {func(d *v1beta1.MachineDeployment) {
			d.Spec.Template.ObjectMeta.Labels = map[string]string{"pool": "workers", v1beta1.LabelProvider: "another"}
		}, v1beta1.ReasonInvalidConfiguration},
		"negative surge": {rolling("-1", "0"), v1beta1.ReasonInvalidConfiguration},
		"no number":      {rolling("many", "0"), v1beta1.ReasonInvalidConfiguration},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.create(3)
			b.settle()
			b.events.took()
			b.hooks.deployment = test.spoil
			b.took()
			if result := b.reconcile(); result.RequeueAfter != 0 {
				t.Errorf("looks again in %s", result.RequeueAfter)
			}
			b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionFalse, test.reason)
			b.wantCondition(v1beta1.ConditionStalled, metav1.ConditionTrue, test.reason)
			b.wantCondition(v1beta1.ConditionReady, metav1.ConditionFalse, test.reason)
			if events := b.events.took(); !slices.Equal(events, []string{test.reason}) {
				t.Errorf("events are %v", events)
			}
			b.reconcile()
			b.wantCalls(patchStatus)
			b.wantReplicas(map[string]int32{"a": 3})
		})
	}
}

// kstatus treats an object without status.observedGeneration and conditions as finished. (rule ready-when-rolled-out)
func TestADeploymentThatNothingHasActedUponIsNotDone(t *testing.T) {
	b := newBench(t)
	b.create(3)
	raw := &unstructured.Unstructured{}
	raw.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineDeployment"))
	b.must(b.api.Get(b.ctx, types.NamespacedName{Namespace: b.namespace, Name: "web"}, raw))
	observed, found, err := unstructured.NestedInt64(raw.Object, "status", "observedGeneration")
	if err != nil || !found || observed == raw.GetGeneration() {
		t.Errorf("the observed generation is %d (found: %t, error: %v) of %d", observed, found, err, raw.GetGeneration())
	}
	b.reconcile()
	b.wantCondition(v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonNewMachineSetCreated)
	b.wantCondition(v1beta1.ConditionReconciling, metav1.ConditionTrue, v1beta1.ReasonNewMachineSetCreated)
	b.settle()
	b.wantCondition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonRolloutComplete)
	b.wantCondition(v1beta1.ConditionReconciling, metav1.ConditionFalse, v1beta1.ReasonRolloutComplete)
}

// A machine's version usually changes at about the same time as other numbers in the status, so one write is enough for
// both changes.
func TestVersionsAloneWaitForAWriteOfOtherNumbers(t *testing.T) {
	b := newBench(t)
	b.create(1)
	b.settle()
	upgraded := func(version string) {
		list := &v1beta1.MachineList{}
		b.must(b.api.List(b.ctx, list, client.InNamespace(b.namespace)))
		for i := range list.Items {
			was := list.Items[i].DeepCopy()
			list.Items[i].Status.Version = version
			b.must(b.api.Status().Patch(b.ctx, &list.Items[i], client.MergeFrom(was)))
		}
	}
	upgraded("v1.36.3")
	b.pass(time.Minute)
	b.took()
	b.reconcile()
	b.wantCalls(patchStatus) // Nothing was written for long.
	upgraded("v1.37.0")
	if result := b.reconcile(); result.RequeueAfter <= time.Second {
		t.Errorf("reconciles again in %s", result.RequeueAfter)
	}
	b.wantCalls()
	b.pass(time.Minute)
	b.reconcile()
	b.wantCalls(patchStatus)
	want := []v1beta1.VersionCount{{Version: "v1.37.0", Count: 1}}
	if got := b.deployment().Status.Versions; !slices.Equal(got, want) {
		t.Errorf("the versions are %v, expected %v", got, want)
	}
}

func TestASetThatTheAPIRefusesIsReported(t *testing.T) {
	b := newBench(t)
	b.create(3)
	b.settle()
	b.events.took()
	b.hooks.beforeCreate = func(set *v1beta1.MachineSet) { set.Spec.MinReadySeconds = -1 }
	b.change(class("b"))
	b.reconcile()
	c := b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionFalse, v1beta1.ReasonMachineSetCreateError)
	if !strings.Contains(c.Message, "spec.minReadySeconds: Invalid value") {
		t.Errorf("the message does not name the field: %s", c.Message)
	}
	b.reconcile()
	if events := b.events.took(); !slices.Equal(events, []string{v1beta1.ReasonMachineSetCreateError}) {
		t.Errorf("events are %v", events)
	}
	if d := b.deployment(); d.Status.ObservedGeneration == d.Generation {
		t.Error("the generation is said to be acted upon, and was not")
	}
	b.wantReplicas(map[string]int32{"a": 3})
	b.hooks.beforeCreate = nil
	b.change(func(d *v1beta1.MachineDeployment) { d.Spec.MinReadySeconds = 1 })
	b.settle()
	b.wantReplicas(map[string]int32{"a": 0, "b": 3})
}

func TestADeploymentBeingDeletedIsLeftAlone(t *testing.T) {
	b := newBench(t)
	b.create(3)
	b.settle()
	b.change(func(d *v1beta1.MachineDeployment) { d.Finalizers = []string{"example.com/hold"} })
	b.must(b.api.Delete(b.ctx, b.deployment()))
	b.change(replicas(7))
	b.reconcile()
	b.wantCalls()
	b.wantReplicas(map[string]int32{"a": 3})
	b.change(func(d *v1beta1.MachineDeployment) { d.Finalizers = nil })
	b.reconcile()
	b.wantCalls()
}

// Rule: labels-too-long-refused.
func TestATemplateWithTooManyLabelsIsRefused(t *testing.T) {
	crowd := func(labels, annotations int) func(*v1beta1.MachineDeployment) {
		return func(d *v1beta1.MachineDeployment) {
			d.Spec.Template.ObjectMeta = v1beta1.TemplateMeta{Labels: map[string]string{"app": "web"},
				Annotations: map[string]string{}}
			for i := range labels - 1 {
				d.Spec.Template.ObjectMeta.Labels[fmt.Sprintf("l%d", i)] = ""
			}
			for i := range annotations {
				d.Spec.Template.ObjectMeta.Annotations[fmt.Sprintf("a%d", i)] = ""
			}
		}
	}
	for _, n := range []int{63, 64} {
		b := newBench(t)
		b.create(2, crowd(n, 64))
		b.reconcile()
		c := b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionFalse, v1beta1.ReasonInvalidConfiguration)
		for _, part := range []string{fmt.Sprintf("%d labels", n), "spec.template.metadata.labels", v1beta1.LabelTemplateHash,
			v1beta1.LabelMachineDeployment, "64"} {
			if !strings.Contains(c.Message, part) {
				t.Errorf("the message does not name %s: %s", part, c.Message)
			}
		}
		b.took()
		b.reconcile()
		b.wantCalls()
		b.change(crowd(62, 64))
		b.settle()
		if d := b.deployment(); d.Status.AvailableReplicas != 2 {
			t.Errorf("with 62 labels %d machines are available, expected 2: %+v", d.Status.AvailableReplicas,
				d.Status.Conditions)
		}
	}
}
