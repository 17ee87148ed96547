package machineset

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"machinist.dev/machinist/api/v1beta1"
)

func TestWhichMachineEventsConcernASet(t *testing.T) {
	for _, test := range []struct {
		name   string
		change machineOption
		want   bool
	}{
		{"nothing", func(*v1beta1.Machine) {}, false},
		{"a label", func(m *v1beta1.Machine) { m.Labels["x"] = "y" }, true},
		{"an annotation, such as a mark", annotated(v1beta1.AnnotationDeleteMachine, ""), true},
		{"the owner", abandoned, true},
		{"the deletion", leaving, true},
		{"a timeout", func(m *v1beta1.Machine) { m.Generation++; m.Spec.Timeouts.Drain = &metav1.Duration{} }, true},
		{"a node taint", func(m *v1beta1.Machine) { m.Generation++; m.Spec.Node.Taints = []corev1.Taint{{Key: "x"}} }, true},
		{"the provider ID", func(m *v1beta1.Machine) { m.Generation++; m.Spec.ProviderID = "sim:///b" }, false},
		{"failing", broken, true},
		{"becoming unhealthy", unhealthy, true},
		{"its remediation", toRemediate, true},
		{"being refused", misconfigured, true},
		{"a new reason not to be Ready", func(m *v1beta1.Machine) {
			setCondition(m, v1beta1.ConditionReady, false, v1beta1.ReasonNodeUnresponsive, time.Minute)
		}, true},
		{"addresses", func(m *v1beta1.Machine) { m.Status.Addresses = []corev1.NodeAddress{{Address: "10.0.0.1"}} }, false},
		{"the last operation", func(m *v1beta1.Machine) { m.Status.LastOperation = &v1beta1.LastOperation{Attempts: 3} }, false},
		{"the node", func(m *v1beta1.Machine) { m.Status.NodeRef = &v1beta1.NodeRef{Name: "n"} }, false},
		{"the drain", func(m *v1beta1.Machine) {
			setCondition(m, v1beta1.ConditionDrained, false, v1beta1.ReasonDraining, 0)
		}, false},
		{"the instance's state", func(m *v1beta1.Machine) { m.Status.Instance = &v1beta1.InstanceStatus{State: "Stopped"} }, false},
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
		t.Error("the course of a deletion concerns the set")
	}
}

func TestOnlyConflicts(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("changed"))
	other := errors.New("other")
	for _, test := range []struct {
		err  error
		want bool
	}{
		{conflict, true},
		{fmt.Errorf("delete machine a: %w", conflict), true},
		{errors.Join(conflict, errors.Join(fmt.Errorf("x: %w", conflict))), true},
		{other, false},
		{errors.Join(conflict, errors.Join(conflict, other)), false},
	} {
		if got := onlyConflicts(test.err); got != test.want {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}
}

// If another writer undoes the template's fields, the set must not patch in a hot loop.
func TestUpdatesThatDoNotHoldAreRepeatedSlowly(t *testing.T) {
	r := &setState{generation: 1}
	m := newMachine("a")
	updates := []Update{{From: m}}
	due, _ := r.dueUpdates(updates, epoch)
	if len(due) != 1 {
		t.Fatal("the first patch is due at once")
	}
	r.sent([]*v1beta1.Machine{m}, epoch)
	due, wait := r.dueUpdates(updates, epoch.Add(10*time.Second))
	if len(due) != 0 || wait != 50*time.Second {
		t.Errorf("10s later: %d due, wait %s", len(due), wait)
	}
	if due, _ = r.dueUpdates(updates, epoch.Add(time.Minute)); len(due) != 1 {
		t.Error("a minute later it is due again")
	}
	r.sent([]*v1beta1.Machine{m}, epoch)
	r.generation = 2
	if due, _ = r.dueUpdates(updates, epoch.Add(time.Second)); len(due) != 1 {
		t.Error("for a new spec it is due at once")
	}
	r.sent([]*v1beta1.Machine{m}, epoch)
	if r.dueUpdates(nil, epoch); len(r.updated) != 0 {
		t.Error("a machine seen in sync is remembered")
	}
}
