package wiring

import (
	"fmt"
	"testing"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
)

func deployment(name string, generation int64) *v1beta1.MachineDeployment {
	d := &v1beta1.MachineDeployment{}
	d.Namespace, d.Name, d.Generation = "default", name, generation
	return d
}

func send(t *testing.T, q workqueue.TypedRateLimitingInterface[reconcile.Request], watches []Watch, was,
	is client.Object) {
	t.Helper()
	for _, w := range watches {
		if was == nil {
			if e := (event.CreateEvent{Object: is}); w.Predicate == nil || w.Predicate.Create(e) {
				w.Keys.Create(t.Context(), e, q)
			}
		} else if e := (event.UpdateEvent{ObjectOld: was, ObjectNew: is}); w.Predicate == nil || w.Predicate.Update(e) {
			w.Keys.Update(t.Context(), e, q)
		}
	}
}

// Rule: changed-spec-goes-first.
func TestASpecChangeDoesNotWaitForNewObjects(t *testing.T) {
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	watches := []Watch{{Keys: &handler.EnqueueRequestForObject{}}, SpecChangesFirst(&v1beta1.MachineDeployment{})}
	for i := range 500 {
		send(t, q, watches, nil, deployment(fmt.Sprintf("new-%d", i), 1))
	}
	send(t, q, watches, deployment("reported", 3), deployment("reported", 3))
	send(t, q, watches, deployment("good", 3), deployment("good", 4))
	if n := q.Len(); n != 502 {
		t.Fatalf("the queue has %d keys, want 502", n)
	}
	if first, priority, _ := q.GetWithPriority(); first.Name != "good" || priority != specChangePriority {
		t.Errorf("%s is first, with priority %d, want the object whose spec changed", first, priority)
	}
	if second, priority, _ := q.GetWithPriority(); priority != 0 || second.Name == "good" {
		t.Errorf("%s is second, with priority %d", second, priority)
	}

	unranked := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer unranked.ShutDown()
	send(t, unranked, watches, deployment("good", 3), deployment("good", 4))
	if n := unranked.Len(); n != 1 {
		t.Errorf("%d keys in a queue without priorities, want 1", n)
	}
}
