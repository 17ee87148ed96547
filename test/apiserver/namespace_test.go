package apiserver

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestNamespaceDeletionDeletesContent(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(clientgoscheme.Scheme, func() time.Time { return time.Unix(2_000_000_000, 0) })
	c := s.Client("person")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	protected := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "held",
		Finalizers: []string{"example.com/hold"}}}
	for _, o := range []client.Object{
		ns, protected, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "loose"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "elsewhere"}},
	} {
		if err := c.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.PendingSteps(); n != 0 {
		t.Errorf("got %d due steps before a deletion, want 0", n)
	}
	if err := c.Delete(ctx, ns); err != nil {
		t.Fatal(err)
	}
	for s.PendingSteps() > 0 {
		s.Step(s.PendingSteps() - 1)
	}
	remaining := s.Snapshot(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	if len(remaining) != 2 || remaining[0].GetName() != "held" || remaining[0].GetDeletionTimestamp() == nil {
		t.Errorf("got ConfigMaps %v, want the one with a finalizer and the one in another namespace", remaining)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(protected), protected); err != nil {
		t.Fatal(err)
	}
	protected.Finalizers = nil
	if err := c.Update(ctx, protected); err != nil {
		t.Fatal(err)
	}
	for s.PendingSteps() > 0 {
		s.Step(0)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(ns), ns); !apierrors.IsNotFound(err) {
		t.Errorf("get the deleted namespace: got %v, want not found", err)
	}
	if n := len(s.Snapshot(corev1.SchemeGroupVersion.WithKind("ConfigMap"))); n != 1 {
		t.Errorf("got %d ConfigMaps, want 1", n)
	}
}
