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

// urgency is the priority of a key whose object's spec has changed. All other keys have 0, or less when a process
// begins.
const urgency = 100

// SpecChangesFirst watches the objects of a kind whose spec changes after they were created, beside the watch that
// names all of them. Such a key goes ahead of others: somebody asks something of a fleet that runs, and must not wait
// for hundreds of new fleets, or for whatever is reported of the machines of broken ones.
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
			key := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.ObjectNew)}
			if ranked, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
				priority := urgency
				ranked.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, key)
				return
			}
			q.Add(key)
		}},
	}
}
