package machineset

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
)

type setsOnly struct {
	client.Client
	sets []v1beta1.MachineSet
}

func (c setsOnly) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1beta1.MachineSetList).Items = c.sets
	return nil
}

func TestMachineEventsReachAffectedSets(t *testing.T) {
	mine, other, unusable := aSet(1), aSet(1), aSet(1)
	other.Name, other.Spec.Selector.MatchLabels = "other", map[string]string{"pool": "others"}
	unusable.Name, unusable.Spec.Selector = "unusable", metav1.LabelSelector{}
	r := New(Options{Client: setsOnly{sets: []v1beta1.MachineSet{*mine, *other, *unusable}}})

	owned := newMachine("a")
	given := owned.DeepCopy()
	given.OwnerReferences[0].Name = "second"
	otherController := owned.DeepCopy()
	otherController.OwnerReferences = []metav1.OwnerReference{{Kind: "Other", Name: "x", Controller: ptr.To(true)}}
	orphan := newMachine("a", abandoned)

	for _, test := range []struct {
		name     string
		was, is  *v1beta1.Machine
		wantSets []string
	}{
		{"a machine of the set", owned, owned, []string{"workers"}},
		{"from one set to another", owned, given, []string{"second", "workers"}},
		{"from a set to another controller", owned, otherController, []string{"workers"}},
		{"from another controller to none", otherController, orphan, []string{"workers"}},
		{"a machine of another controller", otherController, otherController, nil},
		{"an orphan", orphan, orphan, []string{"workers"}},
		{"an orphan that matches another set now", orphan, newMachine("a", abandoned, otherLabels),
			[]string{"other", "workers"}},
	} {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		r.machineEvents().Update(context.Background(), event.UpdateEvent{ObjectOld: test.was, ObjectNew: test.is}, q)
		var got []string
		for q.Len() > 0 {
			request, _ := q.Get()
			got = append(got, request.Name)
		}
		q.ShutDown()
		slices.Sort(got)
		if fmt.Sprint(got) != fmt.Sprint(test.wantSets) {
			t.Errorf("%s: %v, want %v", test.name, got, test.wantSets)
		}
	}
}

// Rule: changed-spec-goes-first.
func TestScaledSetGoesAheadOfNewSets(t *testing.T) {
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	was, is := &v1beta1.MachineSet{}, &v1beta1.MachineSet{}
	was.Name, was.Generation, is.Name, is.Generation = "good", 1, "good", 2
	for _, w := range New(Options{}).Wiring().AllWatches() {
		e := event.UpdateEvent{ObjectOld: was, ObjectNew: is}
		if _, ok := w.Object.(*v1beta1.MachineSet); ok && w.Predicate.Update(e) {
			w.Keys.Update(t.Context(), e, q)
		}
	}
	if _, priority, _ := q.GetWithPriority(); priority <= 0 {
		t.Errorf("a scaled set has priority %d, not more than new sets", priority)
	}
}

func TestAffectsSet(t *testing.T) {
	for _, test := range []struct {
		name   string
		change machineOption
		want   bool
	}{
		{"nothing", func(*v1beta1.Machine) {}, false},
		{"a label", func(m *v1beta1.Machine) { m.Labels["x"] = "y" }, true},
		{"an annotation", annotated(v1beta1.AnnotationDeleteMachine, ""), true},
		{"the owner", abandoned, true},
		{"the deletion", leaving, true},
		{"a timeout", func(m *v1beta1.Machine) { m.Generation++; m.Spec.Timeouts.Drain = &metav1.Duration{} }, true},
		{"a node taint", func(m *v1beta1.Machine) { m.Generation++; m.Spec.Node.Taints = []corev1.Taint{{Key: "x"}} }, true},
		{"the provider ID", func(m *v1beta1.Machine) { m.Generation++; m.Spec.ProviderID = "sim:///b" }, false},
		{"a failure", broken, true},
		{"the health", unhealthy, true},
		{"a remediation request", toRemediate, true},
		{"that it cannot be launched", misconfigured, true},
		{"a new reason not to be Ready", func(m *v1beta1.Machine) {
			setCondition(m, v1beta1.ConditionReady, false, v1beta1.ReasonNodeUnresponsive, time.Minute)
		}, true},
		{"addresses", func(m *v1beta1.Machine) { m.Status.Addresses = []corev1.NodeAddress{{Address: "10.0.0.1"}} }, false},
		{"the last operation", func(m *v1beta1.Machine) { m.Status.LastOperation = &v1beta1.LastOperation{Attempts: 3} },
			false},
		{"the node", func(m *v1beta1.Machine) { m.Status.NodeRef = &v1beta1.NodeRef{Name: "n"} }, false},
		{"the drain", func(m *v1beta1.Machine) {
			setCondition(m, v1beta1.ConditionDrained, false, v1beta1.ReasonDraining, 0)
		}, false},
		{"the instance's state", func(m *v1beta1.Machine) { m.Status.Instance = &v1beta1.InstanceStatus{State: "Stopped"} },
			false},
	} {
		was := newMachine("a", up)
		is := was.DeepCopy()
		test.change(is)
		if got := affectsSet(was, is); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	was := newMachine("a", up, leaving)
	is := was.DeepCopy()
	is.Status.Phase = v1beta1.MachineDeleting
	setCondition(is, v1beta1.ConditionReady, false, v1beta1.ReasonDraining, 0)
	if affectsSet(was, is) {
		t.Error("the progress of a deletion affects the set")
	}
}
