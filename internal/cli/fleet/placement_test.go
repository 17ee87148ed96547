package fleet

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
)

func twoZones() *v1beta1.Placement {
	return &v1beta1.Placement{Domains: []v1beta1.PlacementDomain{
		{Name: "zone-a", Options: []v1beta1.PlacementOption{{ClassName: "small-a"}, {ClassName: "large-a"}, {ClassName: "huge-a"}}},
		{Name: "zone-b", Options: []v1beta1.PlacementOption{{ClassName: "small-b"}}},
	}}
}

func in(domain, class string) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		m.Spec.ClassRef = &v1beta1.LocalRef{Name: class}
		m.Labels[v1beta1.LabelPlacementDomain] = domain
	}
}

// placed returns a deployment and a set with placements. The class small-a has no capacity. One machine of the
// deployment has a class that is no longer an option.
func placed() Facts {
	retry := ago(-2 * time.Minute)
	class := v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "small-a"}}
	class.Status.CapacityRetryTime = &retry
	class.Status.Conditions = []metav1.Condition{cond(v1beta1.ConditionReady, on, "Fine", "", time.Hour),
		cond(v1beta1.ConditionCapacityAvailable, off, v1beta1.ReasonInsufficientResources, "", 3*time.Minute)}
	web, alone := deployment("web", 4), set("", "alone", "", 1)
	web.Spec.Placement, alone.Spec.Placement = twoZones(), twoZones()
	since := ago(4 * time.Minute)
	web.Status.Placement = []v1beta1.PlacementOptionStatus{
		{Domain: "zone-a", ClassName: "small-a", ExhaustedSince: &since, RetryTime: &retry},
		{Domain: "zone-a", ClassName: "large-a"}, {Domain: "zone-a", ClassName: "huge-a"}, {Domain: "zone-b", ClassName: "small-b"}}
	current := set("web", "web-2", "2", 4)
	current.Spec.Placement = twoZones()
	return Facts{Now: now, Namespace: "prod", Deployments: []v1beta1.MachineDeployment{web},
		Sets: []v1beta1.MachineSet{current, alone}, Classes: []v1beta1.MachineClass{class},
		Machines: []v1beta1.Machine{machine("web-2", "web-2-a", in("zone-a", "small-a")),
			machine("web-2", "web-2-b", in("zone-a", "large-a")),
			machine("web-2", "web-2-c", in("zone-b", "small-b"), notLaunched(v1beta1.ReasonProvisioning, time.Minute)),
			machine("web-2", "web-2-d", in("", "removed")),
			machine("alone", "alone-a", in("zone-b", "small-b"))},
		Processes: []why.Process{running("machinist-manager")}}
}

func TestOptionsAreCountedByClass(t *testing.T) {
	s := StatusOf(placed())
	want := []Option{{Domain: "zone-a", Class: "small-a", Machines: 1, Ready: 1}, {Domain: "zone-a", Class: "large-a", Machines: 1, Ready: 1},
		{Domain: "zone-a", Class: "huge-a"}, {Domain: "zone-b", Class: "small-b", Machines: 1}, {Class: "removed", Machines: 1, Ready: 1}}
	got := slices.Clone(s.Deployments[0].Placement)
	for i := range got {
		if exhausted := got[i].ExhaustedSince != nil; exhausted != (got[i].Class == "small-a") {
			t.Errorf("class %s has no capacity: %t", got[i].Class, exhausted)
		}
		got[i].ExhaustedSince, got[i].RetryTime, got[i].isPreferred = nil, nil, false
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if since := s.Sets[0].Placement[0].ExhaustedSince; since == nil || !since.Equal(now.Add(-3*time.Minute)) {
		t.Errorf("for a set, the time comes from its class: %v", since)
	}
}

// A machine may have each class of the placement, but no other.
func TestMachineOfAnOptionIsNotEdited(t *testing.T) {
	s := StatusOf(placed())
	if len(s.Edited) != 1 || s.Edited[0].Name != "web-2-d" || s.Edited[0].Set != "an option of spec.placement" {
		t.Errorf("edited machines: %+v", s.Edited)
	}
}
