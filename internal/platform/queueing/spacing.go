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

// Spacing is the time between two passes that events of many objects trigger, if each pass visits all of the objects.
// Without this time, the cost of creating many objects at once would grow with the square of their number.
type Spacing struct {
	// PerObject is the time for each visited object. Max is the longest time for a pass. Above many objects, the time for
	// each object grows with their number.
	PerObject, Max time.Duration
}

// many is the number of objects up to which the cost of each is about constant. More objects do not stay in the
// processor's cache between two passes: at 3,000, each takes three to four times as long as at 100.
const many = 1000

// For returns the time for a pass that visits the number of objects.
func (s Spacing) For(objects int) time.Duration {
	d := time.Duration(objects) * s.PerObject
	if objects > many {
		d = d / many * time.Duration(objects)
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
