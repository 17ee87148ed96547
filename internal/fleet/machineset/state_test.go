package machineset

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func TestSetStateHasNoNilMaps(t *testing.T) {
	r := reflect.ValueOf(newSharedState().get(&v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "web",
		UID: "uid"}})).Elem()
	for i := range r.NumField() {
		// The map of recoveries may be nil, because the code never adds an entry to it but always assigns a new map.
		if f := r.Field(i); f.Kind() == reflect.Map && f.IsNil() && f.Type() != reflect.TypeFor[recoveries]() {
			t.Errorf("%s is nil", r.Type().Field(i).Name)
		}
	}
}

// The set must not repeat a reverted patch in a hot loop.
func TestUndoneUpdatesAreRepeatedSlowly(t *testing.T) {
	r := &setState{generation: 1}
	m := newMachine("a")
	updates := []Update{{From: m, To: m}}
	due, _ := r.dueUpdates(updates, epoch)
	if len(due) != 1 {
		t.Fatal("the first patch is not due at once")
	}
	r.sent([]*v1beta1.Machine{m}, epoch)
	due, wait := r.dueUpdates(updates, epoch.Add(10*time.Second))
	if len(due) != 0 || wait != 50*time.Second {
		t.Errorf("10s later: %d due, wait %s", len(due), wait)
	}
	if due, _ = r.dueUpdates(updates, epoch.Add(time.Minute)); len(due) != 1 {
		t.Error("the patch is not due again a minute later")
	}
	r.sent([]*v1beta1.Machine{m}, epoch)
	moved := m.DeepCopy()
	moved.Spec.ClassRef = &v1beta1.LocalRef{Name: "next"}
	if due, _ = r.dueUpdates([]Update{{From: m, To: moved}}, epoch.Add(time.Second)); len(due) != 1 {
		t.Error("the patch of a class is not due at once")
	}
	r.sent([]*v1beta1.Machine{m}, epoch)
	r.generation = 2
	if due, _ = r.dueUpdates(updates, epoch.Add(time.Second)); len(due) != 1 {
		t.Error("the patch for a new spec is not due at once")
	}
	r.sent([]*v1beta1.Machine{m}, epoch)
	if r.dueUpdates(nil, epoch); len(r.updated) != 0 {
		t.Error("the record of a machine that was seen in sync is kept")
	}
}
