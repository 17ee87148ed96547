package machineset

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: released-count-towards-ceiling.
func TestReleasedMachinesCountForTheirFormerOwner(t *testing.T) {
	standalone := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "standalone", UID: "set"}}
	owned := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "owned", UID: "other-set",
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(&v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "deployment"}},
				v1beta1.GroupVersion.WithKind("MachineDeployment"))}}}
	released := func(from string, change ...func(*v1beta1.Machine)) v1beta1.Machine {
		m := v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{UID: types.UID("released-from-" + from),
			Annotations: map[string]string{v1beta1.AnnotationReleasedFrom: from}}}
		for _, f := range change {
			f(&m)
		}
		return m
	}
	orphans := []v1beta1.Machine{released("set"), released("set"), released("deployment"), {},
		released("set", func(m *v1beta1.Machine) { m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }),
		released("set",
			func(m *v1beta1.Machine) { m.Annotations[v1beta1.AnnotationPreservedUntil] = "2030-01-31T12:00:00Z" })}
	if n := countReleased(standalone, orphans); n != 2 {
		t.Errorf("the standalone set has released %d machines, want 2", n)
	}
	if n := countReleased(owned, orphans); n != 1 {
		t.Errorf("the deployment of the other set has released %d machines, want 1", n)
	}
}
