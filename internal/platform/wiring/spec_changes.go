package wiring

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// specChangePriority is the priority of an object whose spec has changed. All other keys have the priority 0, or a
// lower priority while the process starts.
const specChangePriority = 100

// SpecChangesFirst returns an additional watch that gives priority to objects whose spec has changed. A user's change
// of a fleet must not wait for hundreds of new fleets or for status updates.
func SpecChangesFirst(object client.Object) Watch {
	return Watch{
		Object: object,
		Predicate: predicate.Funcs{
			CreateFunc:  func(event.CreateEvent) bool { return false },
			UpdateFunc:  predicate.GenerationChangedPredicate{}.Update,
			DeleteFunc:  func(event.DeleteEvent) bool { return false },
			GenericFunc: func(event.GenericEvent) bool { return false },
		},
		Keys: handler.Funcs{UpdateFunc: func(_ context.Context, e event.UpdateEvent,
			q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			Enqueue(q, specChangePriority, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.ObjectNew)})
		}},
	}
}

// Enqueue adds keys to a queue, with the given priority if the queue supports priorities.
func Enqueue(q workqueue.TypedRateLimitingInterface[reconcile.Request], priority int, keys ...reconcile.Request) {
	if ranked, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		ranked.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, keys...)
		return
	}
	for _, key := range keys {
		q.Add(key)
	}
}
