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

// Spacing computes the delay before a pass that visits all objects, although an event of a single object triggers it.
// Without a delay, the creation of n objects would cause up to n passes, so its cost would grow with the square of n.
type Spacing struct {
	// PerObject is the delay for each object that a pass visits, and Max is the longest delay. If there are more objects
	// than linearLimit, the delay for each object grows with the number of objects.
	PerObject, Max time.Duration
}

// linearLimit is the number of objects up to which the time for each object is about constant. If there are more
// objects, they do not stay in the processor's cache between two passes: with 3,000 objects, each object takes three to
// four times as long as with 100.
const linearLimit = 1000

// For returns the delay before a pass that visits the given number of objects.
func (s Spacing) For(objects int) time.Duration {
	d := time.Duration(objects) * s.PerObject
	if objects > linearLimit {
		d = d / linearLimit * time.Duration(objects)
	}
	return min(d, s.Max)
}

// After returns a handler that enqueues the requests that an event affects, each after its delay. If a request has two
// delays, the earlier time counts.
func After(affected func(context.Context, client.Object) []reconcile.Request,
	after func(reconcile.Request) time.Duration) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(ctx context.Context, q queue, objects ...client.Object) {
		var all []reconcile.Request
		for _, o := range objects {
			for _, request := range affected(ctx, o) {
				if !slices.Contains(all, request) { // Usually the old and the new object affect the same requests.
					all = append(all, request)
					q.AddAfter(request, after(request))
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
