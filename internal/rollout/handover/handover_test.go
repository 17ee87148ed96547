package handover

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// S-13
func TestOrderOf(t *testing.T) {
	for value, want := range map[string]Order{
		"web-b:3": {To: "web-b", Machines: 3},
		"web-b:0": {To: "web-b"},
		"web-b":   {To: ":web-b"},
		"web:-1":  {To: ":web:-1"},
		"web:1:2": {To: ":web:1:2"},
		"web:1:":  {To: ":web:1:"},

		"web-b:2:selected": {To: "web-b", Machines: 2, Selected: true},
		"web:x":            {To: ":web:x"},
		":3":               {To: "::3"},
		"":                 {To: ":"},
	} {
		got, ok := OrderOf(map[string]string{v1beta1.AnnotationMoveTo: value})
		if !ok || got != want {
			t.Errorf("%q is %+v, %v; want %+v", value, got, ok, want)
		}
	}
	if _, ok := OrderOf(nil); ok {
		t.Error("no annotation is an order")
	}
	if got := (Order{To: "web-b", Machines: 3}).String(); got != "web-b:3" {
		t.Errorf("written as %q", got)
	}
	if got := (Order{To: "web-b", Machines: 3, Selected: true}).String(); got != "web-b:3:selected" {
		t.Errorf("written as %q", got)
	}
}

// D-14
func TestUpdatingAndUpdateRejected(t *testing.T) {
	const generation = 5
	for name, test := range map[string]struct {
		condition                  *metav1.Condition
		updating, refused, settled bool
	}{
		"nothing":                           {nil, false, false, true},
		"up to date":                        {&metav1.Condition{Status: metav1.ConditionTrue, ObservedGeneration: generation}, false, false, true},
		"up to date before":                 {&metav1.Condition{Status: metav1.ConditionTrue, ObservedGeneration: generation - 1}, true, false, false},
		"being updated":                     {&metav1.Condition{Status: metav1.ConditionFalse, Reason: v1beta1.ReasonUpdating, ObservedGeneration: generation}, true, false, false},
		"refused":                           {&metav1.Condition{Status: metav1.ConditionFalse, Reason: v1beta1.ReasonUnsupportedChange, ObservedGeneration: generation}, true, true, false},
		"failed":                            {&metav1.Condition{Status: metav1.ConditionFalse, Reason: v1beta1.ReasonUpdateError, ObservedGeneration: generation}, true, true, false},
		"what was asked before was refused": {&metav1.Condition{Status: metav1.ConditionFalse, Reason: v1beta1.ReasonUnsupportedChange, ObservedGeneration: generation - 1}, true, false, false},
	} {
		m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Generation: generation}}
		m.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue}}
		if test.condition != nil {
			test.condition.Type = v1beta1.ConditionUpToDate
			m.Status.Conditions = append(m.Status.Conditions, *test.condition)
		}
		if Updating(m) != test.updating || UpdateRejected(m) != test.refused || Settled(m) != test.settled {
			t.Errorf("%s: updating %v, refused %v, settled %v", name, Updating(m), UpdateRejected(m), Settled(m))
		}
	}
}
