package machine

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: set-machines-have-no-managed-fields.
func TestOnlyAMachineOfASetLosesItsManagedFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	if m := w.running("handmade"); len(m.ManagedFields) == 0 {
		t.Error("a Machine that a person made has lost its managed fields")
	}
	m := w.running("m", ofSet)
	if len(m.ManagedFields) > 0 {
		t.Errorf("the managed fields of a set's Machine: %+v", m.ManagedFields)
	}
	w.wantRest("m")

	// Whoever applies to it owns what he applied, as on any other object.
	apply := func(labels string) error {
		return w.api.Patch(t.Context(), w.get("m"), client.RawPatch(types.ApplyPatchType, fmt.Appendf(nil,
			`{"apiVersion":"machinist.dev/v1beta1","kind":"Machine","metadata":{"name":"m","uid":%q,"labels":{%s}}}`, m.UID,
			labels)), client.FieldOwner("gitops"))
	}
	for _, labels := range []string{`"team":"a"`, `"team":"b"`, ""} {
		if err := apply(labels); err != nil {
			t.Fatal(err)
		}
	}
	if value, found := w.get("m").Labels["team"]; found {
		t.Errorf("a label that is applied no more is still %q", value)
	}
	if err := apply(fmt.Sprintf("%q:%q", v1beta1.LabelProvider, "other")); err == nil {
		t.Error("a label that was there before somebody applied is changed without a conflict")
	}
	w.reconcile("m")
	w.delete("m")
	w.reconcile("m")
	if m := w.get("m"); m != nil {
		t.Errorf("the machine is still there: %s", summaryOf(m))
	}
}

// What somebody applied while the machine was launched a second time stays his.
//
// Rule: set-machines-have-no-managed-fields.
func TestManagedFieldsGoOnlyWithTheFirstProviderID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.born("m", ofSet)
	changed := m.DeepCopy()
	changed.Status.Launch = &v1beta1.LaunchStatus{Attempt: 2}
	if err := w.api.Status().Patch(t.Context(), changed, client.MergeFrom(m)); err != nil {
		t.Fatal(err)
	}
	w.reconcile("m")
	if m := w.get("m"); m.Spec.ProviderID == "" || len(m.ManagedFields) == 0 {
		t.Errorf("provider ID %q, managed fields %+v", m.Spec.ProviderID, m.ManagedFields)
	}
}

func ofSet(m *v1beta1.Machine) {
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(
		&v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "set", UID: "set-uid"}},
		v1beta1.GroupVersion.WithKind("MachineSet"))}
}
