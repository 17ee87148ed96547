package overshoot

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"machinist.dev/machinist/api/v1beta1"
)

// Only changes that can affect a surplus trigger a check, and not each progress of a machine or change of a status.
//
// Rule: freeze-confirmed-live.
func TestPredicates(t *testing.T) {
	now := metav1.Now()
	machine := func(f func(*v1beta1.Machine)) bool {
		m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "1"}}
		changed := m.DeepCopy()
		f(changed)
		return numberChanged().Update(event.UpdateEvent{ObjectOld: m, ObjectNew: changed})
	}
	set := func(f func(*v1beta1.MachineSet)) bool {
		s := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "1", Generation: 1}}
		changed := s.DeepCopy()
		f(changed)
		return ownerChanged().Update(event.UpdateEvent{ObjectOld: s, ObjectNew: changed})
	}
	owner := []metav1.OwnerReference{{Kind: kindDeployment, Name: "d", UID: "2", Controller: new(true)}}
	for name, test := range map[string]struct{ got, want bool }{
		"machine: status":   {machine(func(m *v1beta1.Machine) { m.Status.Phase = v1beta1.MachineRunning }), false},
		"machine: deletion": {machine(func(m *v1beta1.Machine) { m.DeletionTimestamp = &now }), true},
		"machine: preserved": {machine(func(m *v1beta1.Machine) {
			m.Annotations = map[string]string{v1beta1.AnnotationPreservedUntil: ""}
		}), true},
		"machine: owner":       {machine(func(m *v1beta1.Machine) { m.OwnerReferences = owner }), true},
		"owner: status":        {set(func(s *v1beta1.MachineSet) { s.Status.Replicas = 3 }), false},
		"owner: specification": {set(func(s *v1beta1.MachineSet) { s.Generation = 2 }), true},
		"owner: label": {set(func(s *v1beta1.MachineSet) { s.Labels = map[string]string{v1beta1.LabelFreeze: ""} }),
			true},
		"owner: unfreeze": {set(func(s *v1beta1.MachineSet) {
			s.Annotations = map[string]string{v1beta1.AnnotationUnfreeze: ""}
		}), true},
		"owner: owner": {set(func(s *v1beta1.MachineSet) { s.OwnerReferences = owner }), true},
	} {
		if test.got != test.want {
			t.Errorf("%s: %v", name, test.got)
		}
	}
}

// A deployment and a set of the same name have different keys. An event of a set that belongs to a deployment triggers
// a check of the deployment.
func TestFleetKeys(t *testing.T) {
	keys := func(o client.Object) (names []string) {
		for _, r := range fleetOfSet(t.Context(), o) {
			names = append(names, r.Name)
		}
		return names
	}
	set := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "web"}}
	if got := keys(set); len(got) != 1 || got[0] != "MachineSet/web" {
		t.Errorf("without an owner: %v", got)
	}
	set.OwnerReferences = []metav1.OwnerReference{{Kind: kindDeployment, Name: "web", Controller: new(true)}}
	if got := keys(set); len(got) != 2 || got[1] != "MachineDeployment/web" {
		t.Errorf("with an owner: %v", got)
	}
	set.OwnerReferences[0].Kind = "Other"
	if got := keys(set); len(got) != 1 || got[0] != "MachineSet/web" {
		t.Errorf("with another owner: %v", got)
	}
	if kind, name := split(keyOf(kindSet, "n", "web")); kind != kindSet || name.Name != "web" || name.Namespace != "n" {
		t.Errorf("%s %s", kind, name)
	}
}
