package machine

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// A merge patch is found by comparing the JSON of both objects. Of a Machine one request changes its status or all
// else, so the other half is left out of the comparison.
type (
	// statusOnly brings the status of a Machine to another, if nobody changed the Machine since it was read as before.
	statusOnly struct{ before *v1beta1.Machine }
	// withoutStatus is the same for all but the status.
	withoutStatus struct{ before *v1beta1.Machine }
)

func (statusOnly) Type() types.PatchType    { return types.MergePatchType }
func (withoutStatus) Type() types.PatchType { return types.MergePatchType }

func (s statusOnly) Data(after client.Object) ([]byte, error) {
	half := func(m *v1beta1.Machine) *v1beta1.Machine {
		return &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{ResourceVersion: m.ResourceVersion}, Status: m.Status}
	}
	return difference(half(s.before), half(after.(*v1beta1.Machine)))
}

func (s withoutStatus) Data(after client.Object) ([]byte, error) {
	half := func(m *v1beta1.Machine) *v1beta1.Machine {
		return &v1beta1.Machine{TypeMeta: m.TypeMeta, ObjectMeta: m.ObjectMeta, Spec: m.Spec}
	}
	return difference(half(s.before), half(after.(*v1beta1.Machine)))
}

func difference(before, after *v1beta1.Machine) ([]byte, error) {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}).Data(after)
}
