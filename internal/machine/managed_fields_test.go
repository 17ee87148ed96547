package machine

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: set-machines-have-no-managed-fields.
func TestManagedFieldsOfASetsMachineAreDroppedWithItsProviderID(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		owner   func(*v1beta1.Machine)
		attempt int32
		cleared bool
	}{
		"a set's machine":                        {owner: ofSet, cleared: true},
		"a machine without a controller":         {owner: func(*v1beta1.Machine) {}},
		"a set's machine that is launched again": {owner: ofSet, attempt: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			m := w.createMachine("m", tc.owner)
			if tc.attempt > 0 {
				changed := m.DeepCopy()
				changed.Status.Launch = &v1beta1.LaunchStatus{Attempt: tc.attempt}
				if err := w.api.Status().Patch(t.Context(), changed, client.MergeFrom(m)); err != nil {
					t.Fatal(err)
				}
			}
			cleared := 0
			w.refuse = func(verb string, o runtime.Object) error {
				if m, ok := o.(*v1beta1.Machine); ok && verb == "patch" && len(m.ManagedFields) > 0 {
					if !reflect.DeepEqual(m.ManagedFields, []metav1.ManagedFieldsEntry{{}}) {
						t.Errorf("sent managed fields %+v", m.ManagedFields)
					}
					cleared++
				}
				return nil
			}
			w.reconcile("m")
			w.node("m", true)
			w.reconcile("m")
			w.wantPhase(w.get("m"), v1beta1.MachineRunning)
			if tc.cleared != (cleared == 1) || cleared > 1 {
				t.Errorf("%d patches cleared the managed fields", cleared)
			}
		})
	}
}

func ofSet(m *v1beta1.Machine) {
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(
		&v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "set", UID: "set-uid"}},
		v1beta1.GroupVersion.WithKind("MachineSet"))}
}
