package machine

import (
	"encoding/json"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

func TestPatchesOfStatusAndRestEqualTheFullPatch(t *testing.T) {
	before := &v1beta1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "n", UID: "u", ResourceVersion: "7",
			Labels: map[string]string{"a": "1"}, Finalizers: []string{"f"}},
		Spec: v1beta1.MachineSpec{Provider: "p", ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"size":"small"}`)}},
		Status: v1beta1.MachineStatus{
			Phase:      v1beta1.MachineRunning,
			Conditions: []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Up"}},
		},
	}
	for name, test := range map[string]struct {
		change func(*v1beta1.Machine)
		half   func(*v1beta1.Machine) client.Patch
	}{
		"status": {func(m *v1beta1.Machine) {
			m.Status.Phase = v1beta1.MachineUnhealthy
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionDrained,
				Status: metav1.ConditionFalse})
		}, func(m *v1beta1.Machine) client.Patch { return statusOnly{m} }},
		"status emptied": {func(m *v1beta1.Machine) { m.Status = v1beta1.MachineStatus{} },
			func(m *v1beta1.Machine) client.Patch { return statusOnly{m} }},
		"the rest": {func(m *v1beta1.Machine) {
			m.Finalizers, m.Labels["b"], m.Spec.ProviderID = nil, "2", "sim://1"
			m.Annotations = map[string]string{"c": "3"}
		}, func(m *v1beta1.Machine) client.Patch { return withoutStatus{m} }},
	} {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopy()
			test.change(after)
			full, err := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}).Data(after)
			if err != nil {
				t.Fatal(err)
			}
			half, err := test.half(before).Data(after)
			if err != nil {
				t.Fatal(err)
			}
			var want, got map[string]any
			if err := json.Unmarshal(full, &want); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(half, &got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("the patch is %s instead of %s", half, full)
			}
		})
	}
}
