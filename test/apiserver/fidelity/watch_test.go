package fidelity

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/env"
)

// A watch sends one event for each change, in the order of the resource versions. The event of a deletion contains the
// last state with a new resource version. A write without a change sends no event.
func TestWatchesMatchRealServer(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	c := env.Client(t)
	list := &corev1.ConfigMapList{}
	if err := c.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	events, err := c.Watch(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	server := apiserver.New(env.Scheme(), time.Now)
	for _, c := range []client.Client{c, server.Client("test")} {
		writeObjects(t, c, namespace)
	}
	var expected []string
	for _, change := range server.Changes(0) {
		if change.GVK.Kind == "ConfigMap" && change.Key.Namespace == namespace {
			expected = append(expected, describe(change.Type, change.New, len(expected)))
		}
	}
	last := int64(0)
	for i, want := range expected {
		select {
		case e := <-events.ResultChan():
			o, ok := e.Object.(client.Object)
			if !ok {
				t.Fatalf("got event %v", e)
			}
			if got := describe(e.Type, o, i); got != want {
				t.Errorf("real:  %s\nstore: %s", got, want)
			}
			version, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
			if err != nil || version <= last {
				t.Errorf("event %d: got version %s after %d", i, o.GetResourceVersion(), last)
			}
			last = version
		case <-time.After(env.Patience):
			t.Fatalf("got no event, want %q", want)
		}
	}
}

func describe(kind watch.EventType, o client.Object, i int) string {
	data := map[string]string(nil)
	if m, ok := o.(*corev1.ConfigMap); ok {
		data = m.Data
	}
	return fmt.Sprint(i, " ", kind, " ", o.GetName(), o.GetFinalizers(), o.GetDeletionTimestamp() != nil, data)
}

func writeObjects(t *testing.T, c client.Client, namespace string) {
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
	b := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "b",
		Finalizers: []string{"example.com/held"}}}
	must(c.Create(ctx, a))
	must(c.Create(ctx, b))
	a.Data = map[string]string{"x": "1"}
	must(c.Update(ctx, a))
	must(c.Update(ctx, a)) // This update changes nothing.
	must(c.Delete(ctx, b))
	must(c.Delete(ctx, b)) // The finalizer remains, so a second deletion changes nothing.
	must(c.Delete(ctx, a))
	b.Finalizers = nil
	must(c.Patch(ctx, b, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
	must(c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}))
}
