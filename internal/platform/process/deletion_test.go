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

// What is deleted is seen at once by who deleted it: of ours and of Kubernetes' own, that stays for a while or goes at
// once or is another than was meant.
func TestDeletionsAreSeenAtOnce(t *testing.T) {
	c, err := newCluster(planes.control.Config(), clusterOptions{
		scheme: testScheme(), fence: fence.AlwaysOpen(), kinds: []Kind{{Object: &v1beta1.MachineClass{}}},
		readTimeout: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	fillCache(t, c)
	namespace := newNamespace(t)

	lost := newClass(namespace, "held")
	lost.Finalizers = []string{"example.com/held"}
	free := newClass(namespace, "free")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "secret",
		Finalizers: []string{"example.com/held"}}}
	t.Cleanup(func() {
		for _, o := range []client.Object{lost, secret} {
			if err := c.Live.Patch(context.Background(), o, client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"finalizers":null}}`))); err != nil {
				t.Error(err)
			}
		}
	})
	for _, o := range []client.Object{lost, free, secret} {
		if err := c.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	err = c.Client.Delete(t.Context(), lost, client.Preconditions{UID: ptr.To(secret.UID)})
	if !apierrors.IsConflict(err) {
		t.Errorf("another of the name: %v, want a conflict", err)
	}
	for _, o := range []client.Object{lost, free, secret} {
		if err := c.Client.Delete(t.Context(), o); err != nil {
			t.Errorf("delete %s: %v", o.GetName(), err)
		}
	}
	got := &v1beta1.MachineClass{}
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(lost), got); err != nil ||
		got.DeletionTimestamp == nil {
		t.Errorf("what was deleted is read back as %+v, %v", got.ObjectMeta, err)
	}
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(free), got); !apierrors.IsNotFound(err) {
		t.Errorf("what has gone is read back: %v", err)
	}
	if err := c.Client.Delete(t.Context(), free); !apierrors.IsNotFound(err) {
		t.Errorf("deleting what has gone: %v", err)
	}
}
