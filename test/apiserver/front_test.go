package apiserver_test

import (
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/env"
)

func frontClients(t *testing.T) map[string]client.WithWatch {
	t.Helper()
	front := apiserver.NewFront(apiserver.New(env.Scheme(), time.Now))
	server := httptest.NewServer(front)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	c, err := client.NewWithWatch(&rest.Config{Host: server.URL,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}, client.Options{Scheme: env.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]client.WithWatch{"over HTTP": c, "directly": front.Client(apiserver.Administrator)}
}

func TestFrontHandlesRequests(t *testing.T) {
	for name, c := range frontClients(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", GenerateName: "s-",
				Labels: map[string]string{"by": name[:4]}}, StringData: map[string]string{"a": "1"}}
			if err := c.Create(ctx, secret); err != nil {
				t.Fatal(err)
			}
			stale := secret.DeepCopy()
			secret.Data["a"] = []byte("2")
			if err := c.Update(ctx, secret); err != nil {
				t.Fatal(err)
			}
			if err := c.Update(ctx, stale); !apierrors.IsConflict(err) {
				t.Errorf("update an old version: got %v, want a conflict", err)
			}
			l := &metav1.PartialObjectMetadataList{}
			l.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
			if err := c.List(ctx, l, client.InNamespace("ns"), client.MatchingLabels{"by": name[:4]}); err != nil {
				t.Fatal(err)
			}
			if len(l.Items) != 1 || l.Items[0].Name != secret.Name {
				t.Errorf("got list %+v, want the Secret", l.Items)
			}
			if err := c.Delete(ctx, secret, client.Preconditions{UID: &l.Items[0].UID}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(ctx, client.ObjectKeyFromObject(secret), secret); !apierrors.IsNotFound(err) {
				t.Errorf("get a deleted Secret: got %v, want not found", err)
			}
			m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m-" + name[:4]}}
			if err := c.Create(ctx, m); !apierrors.IsInvalid(err) {
				t.Errorf("create a Machine without a class: got %v, want invalid", err)
			}
		})
	}
}

func TestWatchAddsAndDeletesBySelector(t *testing.T) {
	for name, c := range frontClients(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"pool": "a"}}}
			if err := c.Create(ctx, node); err != nil {
				t.Fatal(err)
			}
			events, err := c.Watch(ctx, &corev1.NodeList{}, client.MatchingLabels{"pool": "a"})
			if err != nil {
				t.Fatal(err)
			}
			defer events.Stop()
			next := func(kind watch.EventType) {
				t.Helper()
				if e := <-events.ResultChan(); e.Type != kind || e.Object.(*corev1.Node).Name != "n" {
					t.Fatalf("got event %s %+v, want %s", e.Type, e.Object, kind)
				}
			}
			next(watch.Added)
			change := func(do func()) {
				t.Helper()
				before := node.DeepCopy()
				do()
				if err := c.Patch(ctx, node, client.MergeFrom(before)); err != nil {
					t.Fatal(err)
				}
			}
			change(func() { node.Spec.Unschedulable = true })
			next(watch.Modified)
			change(func() { node.Labels["pool"] = "b" })
			next(watch.Deleted)
			change(func() { node.Spec.Unschedulable = false })
			change(func() { node.Labels["pool"] = "a" })
			next(watch.Added)
			if err := c.Delete(ctx, node); err != nil {
				t.Fatal(err)
			}
			next(watch.Deleted)
		})
	}
}
