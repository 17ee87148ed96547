package process

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/process/fence"
)

// After a deletion, the next read must show its effect. The test covers kinds of Machinist and of Kubernetes, objects
// with and without finalizers, and failed preconditions.
func TestReadsSeeOwnDeletionsAtOnce(t *testing.T) {
	c, err := newCluster(planes.control.Config(), clusterOptions{
		scheme: testScheme(), fence: fence.AlwaysOpen(), kinds: []Kind{{Object: &v1beta1.MachineClass{}}},
		readTimeout: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	fillCache(t, c)
	namespace := newNamespace(t)

	held := newClass(namespace, "held")
	held.Finalizers = []string{"example.com/held"}
	free := newClass(namespace, "free")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "secret",
		Finalizers: []string{"example.com/held"}}}
	t.Cleanup(func() {
		for _, o := range []client.Object{held, secret} {
			if err := c.LiveClient.Patch(context.Background(), o, client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"finalizers":null}}`))); err != nil {
				t.Error(err)
			}
		}
	})
	for _, o := range []client.Object{held, free, secret} {
		if err := c.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	err = c.Client.Delete(t.Context(), held, client.Preconditions{UID: ptr.To(secret.UID)})
	if !apierrors.IsConflict(err) {
		t.Errorf("delete with the UID of another object: %v, want a conflict", err)
	}
	for _, o := range []client.Object{held, free, secret} {
		if err := c.Client.Delete(t.Context(), o); err != nil {
			t.Errorf("delete %s: %v", o.GetName(), err)
		}
	}
	got := &v1beta1.MachineClass{}
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(held), got); err != nil ||
		got.DeletionTimestamp == nil {
		t.Errorf("an object with a finalizer is read after its deletion as %+v, %v", got.ObjectMeta, err)
	}
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(free), got); !apierrors.IsNotFound(err) {
		t.Errorf("a deleted object is read: %v", err)
	}
	if err := c.Client.Delete(t.Context(), free); !apierrors.IsNotFound(err) {
		t.Errorf("deleting an object again: %v", err)
	}
}
