package machine

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"machinist.dev/machinist/api/v1beta1"
)

// Each change that can end the wait for an adoption triggers a pass.
//
// Rule: adoption-waits-end-with-events.
func TestEventsThatEndTheWaitForAnAdoption(t *testing.T) {
	class := func(change func(*v1beta1.MachineClass)) *v1beta1.MachineClass {
		c := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Generation: 1, Annotations: map[string]string{
			v1beta1.AnnotationAdoptFromCluster: "lost"}}}
		change(c)
		return c
	}
	for name, test := range map[string]struct {
		change func(*v1beta1.MachineClass)
		wakes  bool
	}{
		"the permission is granted": {func(c *v1beta1.MachineClass) {
			c.Annotations[v1beta1.AnnotationAdoptFromClusterUntil] = "2026-01-31T15:00:00Z"
		}, true},
		"the permission is withdrawn": {func(c *v1beta1.MachineClass) { c.Annotations = nil }, true},
		"spec.adoption changes":       {func(c *v1beta1.MachineClass) { c.Generation++ }, true},
		"the status changes": {func(c *v1beta1.MachineClass) {
			c.Status.ObservedGeneration++
		}, false},
	} {
		before := class(func(*v1beta1.MachineClass) {})
		if got := classChanged().Update(event.UpdateEvent{ObjectOld: before,
			ObjectNew: class(test.change)}); got != test.wakes {
			t.Errorf("%s: wakes %t, want %t", name, got, test.wakes)
		}
	}

	with := func(id string) *v1beta1.Machine { return &v1beta1.Machine{Spec: v1beta1.MachineSpec{ProviderID: id}} }
	for name, test := range map[string]struct {
		before, after string
		wakes         bool
	}{
		"the instance is replaced": {"fake://1", "", true},
		"the provider ID stays":    {"fake://1", "fake://1", false},
		"the machine is launched":  {"", "fake://1", false},
	} {
		if got := instanceReleased().Update(event.UpdateEvent{ObjectOld: with(test.before),
			ObjectNew: with(test.after)}); got != test.wakes {
			t.Errorf("the older machine: %s: wakes %t, want %t", name, got, test.wakes)
		}
	}
	if !instanceReleased().Delete(event.DeleteEvent{Object: with("fake://1")}) {
		t.Error("the older machine is gone, but nothing triggers the younger one")
	}
}

// Rule: adoption-waits-end-with-events.
func TestAdoptionWaitsForTheStartOfItsPermission(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	id := "fake://" + w.namespace + "/m-1"
	w.putFormer(id, "lost", "m")
	w.permit("small", "lost", w.clock.Now().Add(v1beta1.MaxAdoptionFromCluster+time.Hour))
	w.createMachine("m", withProviderID(id))
	again := w.reconcile("m").RequeueAfter
	w.wantCondition(w.get("m"), v1beta1.ConditionLaunched, metav1.ConditionFalse, v1beta1.ReasonAdoptionForbidden)
	if again < 59*time.Minute || again > time.Hour {
		t.Errorf("checks again after %s, want 1h", again)
	}
	w.step(time.Hour)
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionLaunched, metav1.ConditionTrue, v1beta1.ReasonInstanceAdopted)
}
