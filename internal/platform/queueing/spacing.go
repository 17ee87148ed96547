package queueing

import (
	"context"
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Spacing computes the delay between the event of one object and the pass over all objects that the event triggers.
// Without a delay, the creation of n objects would cause up to n passes, and the total cost would grow with the square
// of n.
type Spacing struct {
	// PerObject is the delay per object. Max limits the total delay. Above linearLimit objects, the delay per object
	// grows with the number of objects.
	PerObject, Max time.Duration
}

// linearLimit is the number of objects that fit into the processor's cache. A pass over 3,000 objects takes three to
// four times as long per object as a pass over 100 objects.
const linearLimit = 1000

// Delay returns the delay before the next pass over the given number of objects.
func (s Spacing) Delay(objects int) time.Duration {
	d := time.Duration(objects) * s.PerObject
	if objects > linearLimit {
		d = d / linearLimit * time.Duration(objects)
	}
	return min(d, s.Max)
}

// EnqueueAfter returns an event handler that adds reconcile requests to the work queue with a delay. The function
// gets the requests for an event's object from the first function. The second function returns the delay of a
// request. A request that is added twice is processed at the earlier time.
func EnqueueAfter(affected func(context.Context, client.Object) []reconcile.Request,
	delayOf func(reconcile.Request) time.Duration) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(ctx context.Context, q queue, objects ...client.Object) {
		var all []reconcile.Request
		for _, o := range objects {
			for _, request := range affected(ctx, o) {
				if !slices.Contains(all, request) { // Usually the old and the new object affect the same requests.
					all = append(all, request)
					q.AddAfter(request, delayOf(request))
				}
			}
		}
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q queue) { enqueue(ctx, q, e.Object) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q queue) { enqueue(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q queue) { enqueue(ctx, q, e.Object) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { enqueue(ctx, q, e.Object) },
	}
}
