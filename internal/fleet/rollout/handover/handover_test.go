package handover

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: handover-gives-surplus.
func TestOrderOf(t *testing.T) {
	for value, want := range map[string]Order{
		"web-b:3": {Receiver: "web-b", Machines: 3},
		"web-b:0": {Receiver: "web-b"},
		"web-b":   {Receiver: ":web-b"},
		"web:-1":  {Receiver: ":web:-1"},
		"web:1:2": {Receiver: ":web:1:2"},
		"web:1:":  {Receiver: ":web:1:"},

		"web-b:2:selected": {Receiver: "web-b", Machines: 2, OnlySelected: true},
		"web:x":            {Receiver: ":web:x"},
		":3":               {Receiver: "::3"},
		"":                 {Receiver: ":"},
	} {
		got, ok := OrderOf(map[string]string{v1beta1.AnnotationMoveTo: value})
		if !ok || got != want {
			t.Errorf("%q is %+v, %v; want %+v", value, got, ok, want)
		}
	}
	if _, ok := OrderOf(nil); ok {
		t.Error("a set without annotations has an order")
	}
	if got := (Order{Receiver: "web-b", Machines: 3}).String(); got != "web-b:3" {
		t.Errorf("written as %q", got)
	}
	if got := (Order{Receiver: "web-b", Machines: 3, OnlySelected: true}).String(); got != "web-b:3:selected" {
		t.Errorf("written as %q", got)
	}
}

// Rule handover-gives-surplus: a set follows the annotations only if a deployment controls it, and only the chosen set
// receives machines.
func TestOrdersBetweenSets(t *testing.T) {
	set := func(name, owner, kind string) *v1beta1.MachineSet {
		controls := true
		return &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name),
			OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: owner, UID: types.UID(owner), Controller: &controls}}}}
	}
	from, to := set("a", "web", "MachineDeployment"), set("b", "web", "MachineDeployment")
	want := Order{Receiver: "b", Machines: 3, OnlySelected: true}
	Annotate(from, want, "")
	Annotate(to, Order{}, "a")
	if got, ok := Ordered(from); !ok || got != want || Receives(from) {
		t.Errorf("set a has the order %+v (%t), and receives: %t", got, ok, Receives(from))
	}
	if _, ordered := Ordered(to); ordered || !Receives(to) || !ReceivesFrom(to, from) || ReceivesFrom(from, to) {
		t.Error("set b does not receive machines from set a, or has an order itself")
	}
	other := set("c", "web", "Other")
	Annotate(other, want, "a")
	if _, ordered := Ordered(other); ordered || Receives(other) {
		t.Error("a set without a deployment follows the annotations")
	}
	foreign := set("b", "another", "MachineDeployment")
	Annotate(foreign, Order{}, "a")
	if ReceivesFrom(foreign, from) {
		t.Error("a set of another deployment receives machines")
	}
	now := metav1.Now()
	to.DeletionTimestamp = &now
	if ReceivesFrom(to, from) {
		t.Error("a set being deleted receives machines")
	}
	Annotate(from, Order{}, "")
	if _, ordered := Ordered(from); ordered {
		t.Error("the order was not removed")
	}
}

// Rule: updating-counts-as-unavailable.
func TestUpdatingAndUpdateRejected(t *testing.T) {
	const generation = 5
	for name, test := range map[string]struct {
		condition                      *metav1.Condition
		updating, rejected, interrupts bool
	}{
		"no condition": {nil, false, false, true},
		"up to date": {&metav1.Condition{Status: metav1.ConditionTrue, ObservedGeneration: generation},
			false, false, true},
		"up to date for the previous generation": {&metav1.Condition{Status: metav1.ConditionTrue,
			ObservedGeneration: generation - 1}, true, false, false},
		"being updated": {&metav1.Condition{Status: metav1.ConditionFalse, Reason: v1beta1.ReasonUpdating,
			ObservedGeneration: generation}, true, false, false},
		"rejected": {&metav1.Condition{Status: metav1.ConditionFalse,
			Reason: v1beta1.ReasonUnsupportedChange, ObservedGeneration: generation}, true, true, false},
		"failed": {&metav1.Condition{Status: metav1.ConditionFalse,
			Reason: v1beta1.ReasonUpdateError, ObservedGeneration: generation}, true, true, false},
		"rejected for the previous generation": {&metav1.Condition{Status: metav1.ConditionFalse,
			Reason: v1beta1.ReasonUnsupportedChange, ObservedGeneration: generation - 1}, true, false, false},
	} {
		m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Generation: generation}}
		m.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue}}
		if test.condition != nil {
			test.condition.Type = v1beta1.ConditionUpToDate
			m.Status.Conditions = append(m.Status.Conditions, *test.condition)
		}
		if Updating(m) != test.updating || UpdateRejected(m) != test.rejected || Interrupts(m) != test.interrupts {
			t.Errorf("%s: updating %v, rejected %v, interrupts %v", name, Updating(m), UpdateRejected(m), Interrupts(m))
		}
	}
}
