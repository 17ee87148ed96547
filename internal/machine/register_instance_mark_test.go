package machine

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/nodemark"
)

// Rule: node-of-lost-machine-deleted.
func TestNodeIsMarkedWithItsInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m")
	node := w.getNode(nodeNameOf(w.namespace, "m"))
	mark, ok := nodemark.Parse(node.Annotations[v1beta1.NodeAnnotationInstance])
	want := nodemark.Mark{ClusterID: "cluster", Provider: fakeProvider, Class: "small", ProviderID: m.Spec.ProviderID,
		Scope: m.Status.Instance.Scope}
	if !ok || mark != want {
		t.Errorf("the mark is %+v, want %+v", mark, want)
	}
	// The kubelet has removed the mark. The Node gets it again.
	unmarked := node.DeepCopy()
	delete(unmarked.Annotations, v1beta1.NodeAnnotationInstance)
	if err := w.api.Patch(t.Context(), unmarked, client.MergeFrom(node)); err != nil {
		t.Fatal(err)
	}
	w.reconcile("m")
	if w.getNode(node.Name).Annotations[v1beta1.NodeAnnotationInstance] != want.String() {
		t.Error("the node has no mark")
	}
	w.wantRest("m")
}
