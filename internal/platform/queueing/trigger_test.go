package queueing

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func newQueue(t *testing.T, trigger *Trigger) queue {
	t.Helper()
	q := queue{workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())}
	t.Cleanup(q.ShutDown)
	if err := trigger.Source().Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	return q
}

func (q queue) take() (names []string) {
	for q.Len() > 0 {
		request, _ := q.Get()
		q.Done(request)
		names = append(names, request.Name)
	}
	return names
}

func TestObjectsEnqueuedBeforeTheStartAreKept(t *testing.T) {
	var trigger Trigger
	for _, name := range []string{"m2", "m1", "m2"} {
		trigger.Enqueue(key(name))
	}
	q := newQueue(t, &trigger)
	if got := fmt.Sprint(q.take()); got != "[m1 m2]" {
		t.Errorf("got %s from before the start, want [m1 m2]", got)
	}
	trigger.Enqueue(key("m3"))
	if got := fmt.Sprint(q.take()); got != "[m3]" {
		t.Errorf("got %s, want [m3]", got)
	}
}
