package places

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/placement"
)

// Rule: placement-reported.
func TestRejectionOf(t *testing.T) {
	classWith := func(status metav1.ConditionStatus, reason string, observed int64) *v1beta1.MachineClass {
		class := &v1beta1.MachineClass{}
		class.Generation = 2
		meta.SetStatusCondition(&class.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionReady, Status: status,
			Reason: reason, ObservedGeneration: observed})
		return class
	}
	valid := classWith(metav1.ConditionTrue, v1beta1.ReasonValid, 2)
	for name, test := range map[string]struct {
		class *v1beta1.MachineClass
		want  string
	}{
		"not checked":               {&v1beta1.MachineClass{}, ""},
		"valid":                     {valid, ""},
		"invalid":                   {classWith(metav1.ConditionFalse, v1beta1.ReasonInvalidProviderSpec, 2), "InvalidProviderSpec"},
		"without credentials":       {classWith(metav1.ConditionFalse, v1beta1.ReasonCredentialsNotFound, 2), "CredentialsNotFound"},
		"the cloud does not answer": {classWith(metav1.ConditionFalse, v1beta1.ReasonProviderUnavailable, 2), ""},
		"changed after the check":   {classWith(metav1.ConditionFalse, v1beta1.ReasonInvalidProviderSpec, 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := rejectionOf(test.class); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			changed := CapacityChanged().Update(event.UpdateEvent{ObjectOld: valid, ObjectNew: test.class})
			if changed != (test.want != "") {
				t.Errorf("after a valid class, the deployment is reconciled: %t", changed)
			}
		})
	}
}

// Rule: placement-reported.
func TestSilent(t *testing.T) {
	by := &v1beta1.Placement{Domains: []v1beta1.PlacementDomain{
		{Name: "zone-a", Options: []v1beta1.PlacementOption{{ClassName: "a1"}, {ClassName: "a2"}}},
		{Name: "zone-b", Options: []v1beta1.PlacementOption{{ClassName: "b1"}}}}}
	machines := func(n int, class, reason string) (all []*v1beta1.Machine) {
		for range n {
			m := &v1beta1.Machine{Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: class}}}
			m.Status.NodeRef = &v1beta1.NodeRef{Name: "node"}
			meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionNodeHealthy, Reason: reason})
			all = append(all, m)
		}
		return all
	}
	silent := func(n int, class string) []*v1beta1.Machine {
		return machines(n, class, v1beta1.ReasonNodeUnresponsive)
	}
	ready := func(n int, class string) []*v1beta1.Machine { return machines(n, class, v1beta1.ReasonNodeReady) }
	joining, leaving := silent(3, "a1"), silent(3, "a1")
	for i := range joining {
		joining[i].Status.NodeRef = nil
		leaving[i].DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	}
	for name, test := range map[string]struct {
		machines []*v1beta1.Machine
		want     []Silence
	}{
		"most Nodes, in two classes": {slices.Concat(silent(2, "a1"), silent(1, "a2"), ready(2, "a1"), ready(9, "b1")),
			[]Silence{{"zone-a", 5, 3}}},
		"both domains":     {slices.Concat(silent(3, "b1"), silent(4, "a1")), []Silence{{"zone-a", 4, 4}, {"zone-b", 3, 3}}},
		"half of them":     {slices.Concat(silent(3, "a1"), ready(3, "a1")), nil},
		"too few":          {silent(2, "a1"), nil},
		"other conditions": {machines(3, "a1", v1beta1.ReasonNodeConditionsFailed), nil},
		"no domain":        {silent(3, "x"), nil},
		"joining, leaving": {slices.Concat(joining, leaving), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Silent(by, test.machines); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
	if got := Silent(nil, silent(3, "a1")); got != nil {
		t.Errorf("without a placement: %v", got)
	}
}

// Rule: placement-reported.
func TestAddUnlaunchable(t *testing.T) {
	machine := func(class, reason string) *v1beta1.Machine {
		m := &v1beta1.Machine{Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: class}}}
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionLaunched,
			Status: metav1.ConditionFalse, Reason: reason})
		return m
	}
	leaving := machine("two", v1beta1.ReasonInvalidConfiguration)
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	machines := []*v1beta1.Machine{leaving, machine("full", v1beta1.ReasonInsufficientResources),
		machine("two", v1beta1.ReasonInvalidConfiguration), machine("two", v1beta1.ReasonInvalidConfiguration)}
	for range MaxUnlaunchable {
		machines = append(machines, machine("three", v1beta1.ReasonInvalidConfiguration),
			machine("deleted", v1beta1.ReasonClassDeleting), machine("invalid", v1beta1.ReasonInvalidConfiguration))
	}
	capacity := map[string]placement.Capacity{"deleted": {Missing: true},
		"invalid": {Rejected: v1beta1.ReasonInvalidProviderSpec}}
	AddUnlaunchable(capacity, machines)
	want := map[string]placement.Capacity{"deleted": {Missing: true},
		"invalid": {Missing: true, Rejected: v1beta1.ReasonInvalidProviderSpec},
		"three":   {Missing: true, Rejected: v1beta1.ReasonInvalidConfiguration}}
	if len(capacity) != len(want) {
		t.Errorf("got %+v", capacity)
	}
	for class, c := range want {
		if capacity[class] != c {
			t.Errorf("class %s: got %+v, want %+v", class, capacity[class], c)
		}
	}
}
