package api

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env"
)

// The provider clears the managed fields of a Machine in a set by writing a single empty entry. Later, managers that
// use server-side apply own the fields that they apply, as usual.
func TestEmptyEntryClearsManagedFields(t *testing.T) {
	c, namespace := env.Client(t), env.Namespace(t)
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m",
		Labels: map[string]string{v1beta1.LabelProvider: "fake"}}}
	m.Spec.ClassRef = &v1beta1.LocalRef{Name: "small"}
	if err := c.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if len(m.ManagedFields) == 0 {
		t.Fatal("a new Machine has no managed fields")
	}
	before := m.DeepCopy()
	m.Spec.ProviderID, m.ManagedFields = "fake://1", []metav1.ManagedFieldsEntry{{}}
	if err := c.Patch(t.Context(), m, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if len(m.ManagedFields) > 0 {
		t.Errorf("the Machine still has managed fields: %+v", m.ManagedFields)
	}
	apply := func(labels string) error {
		return c.Patch(t.Context(), m, client.RawPatch(types.ApplyPatchType, fmt.Appendf(nil,
			`{"apiVersion":"machinist.dev/v1beta1","kind":"Machine","metadata":{"name":"m","uid":%q,"labels":{%s}}}`, m.UID,
			labels)), client.FieldOwner("gitops"))
	}
	for _, labels := range []string{`"team":"a"`, `"team":"b"`, ""} {
		if err := apply(labels); err != nil {
			t.Fatal(err)
		}
	}
	if value, found := m.Labels["team"]; found {
		t.Errorf("a label that is no longer applied is still %q", value)
	}
	if err := apply(fmt.Sprintf("%q:%q", v1beta1.LabelProvider, "other")); err == nil {
		t.Error("no conflict for a label that was set before the managed fields were cleared")
	}
}
