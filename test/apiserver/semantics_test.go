package apiserver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

func TestGeneratedNamesAreDeterministic(t *testing.T) {
	var names [2][]string
	for i := range names {
		w := newTestServer()
		for range 50 {
			m := machine("")
			m.GenerateName = "m-"
			w.must(t, w.Create(t.Context(), m))
			if slices.Contains(names[i], m.Name) {
				t.Fatalf("%s was generated twice", m.Name)
			}
			names[i] = append(names[i], m.Name)
		}
	}
	if !slices.Equal(names[0], names[1]) {
		t.Errorf("two runs generated different names: %v and %v", names[0], names[1])
	}
}

func TestClonesAndCallersAreIndependent(t *testing.T) {
	w := newTestServer()
	m := machine("a")
	w.must(t, w.Create(t.Context(), m))
	clone := &testServer{Server: w.Clone(func() time.Time { return epoch }), now: epoch}
	clone.Client = clone.Server.Client("clone")
	m.Labels["app"] = "changed by the caller"
	if got := reload(t, w, machine("a")); got.Labels["app"] != "a" {
		t.Error("a change of the object of a caller changed the store")
	}
	w.must(t, clone.Delete(t.Context(), machine("a")))
	w.must(t, clone.Create(t.Context(), machine("b")))
	w.must(t, w.Create(t.Context(), machine("c")))
	if w.Changes(2)[0].Key.Name != "c" || clone.Changes(3)[0].Key.Name != "b" || len(w.Changes(2)) != 1 {
		t.Errorf("got changes %+v and %+v in the clone, want only their own", w.Changes(2), clone.Changes(2))
	}
	if reload(t, w, machine("a")).Name != "a" {
		t.Error("a deletion in the clone changed the original")
	}
}

func TestMetadataAndUnstructuredObjects(t *testing.T) {
	w := newTestServer()
	w.must(t, w.Create(t.Context(), machine("a")))
	gvk := v1beta1.GroupVersion.WithKind("Machine")
	partial := &metav1.PartialObjectMetadata{}
	partial.SetGroupVersionKind(gvk)
	w.must(t, w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "a"}, partial))
	if partial.Labels["app"] != "a" || partial.GroupVersionKind() != gvk {
		t.Errorf("got metadata %+v", partial)
	}
	before := partial.DeepCopy()
	partial.Labels["app"] = "b"
	w.must(t, w.Patch(t.Context(), partial, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	w.must(t, w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "a"}, u))
	if u.GetLabels()["app"] != "b" || u.GetGeneration() != 1 {
		t.Errorf("got %+v, want label b and generation 1", u)
	}
	u.SetLabels(map[string]string{"app": "c"})
	w.must(t, w.Update(t.Context(), u))
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineList"))
	w.must(t, w.List(t.Context(), list, client.MatchingLabels{"app": "c"}, client.InNamespace(namespace)))
	if len(list.Items) != 1 {
		t.Errorf("got %+v, want one object", list.Items)
	}
}

func TestApplyMergesConditions(t *testing.T) {
	w := newTestServer()
	m := machine("a")
	w.must(t, w.Create(t.Context(), m))
	apply := func(kind, manager string) {
		t.Helper()
		c := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "machinist.dev/v1beta1", "kind": "Machine", "metadata": map[string]any{"namespace": namespace,
				"name": "a"},
			"status": map[string]any{"conditions": []any{map[string]any{
				"type": kind, "status": "True", "reason": "A", "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z"}}},
		}})
		w.must(t, w.Status().Apply(t.Context(), c, client.FieldOwner(manager)))
	}
	apply("Ready", "a")
	apply("Drained", "b")
	if got := reload(t, w, m).Status.Conditions; len(got) != 2 {
		t.Errorf("got conditions %+v, want 2", got)
	}
	revision := w.Revision()
	apply("Ready", "a")
	if w.Revision() != revision {
		t.Error("applying the same configuration again changed the object")
	}
}

func TestCancelledContext(t *testing.T) {
	w := newTestServer()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Create(ctx, machine("a")); !errors.Is(err, ctx.Err()) || w.Revision() != firstRevision {
		t.Errorf("create with a cancelled context: got %v, want %v", err, ctx.Err())
	}
}
