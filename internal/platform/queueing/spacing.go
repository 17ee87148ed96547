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

// Spacing is the time between two passes that events of many objects trigger. A pass goes through all of them: without
// time in between, the cost of objects that come up at once would grow with the square of their number.
type Spacing struct {
	// PerObject is the time for each object that a pass goes through, Max the longest time. Of more objects than many,
	// the time for each grows with their number.
	PerObject, Max time.Duration
}

// many is up to how many objects each costs a pass about the same. More of them do not stay in the processor's own
// cache between two passes: at 3,000 each takes three to four times as long as at 100.
const many = 1000

// For returns the time for a pass that goes through that many objects.
func (s Spacing) For(objects int) time.Duration {
	d := time.Duration(objects) * s.PerObject
	if objects > many {
		d = d / many * time.Duration(objects)
	}
	return min(d, s.Max)
}

// After enqueues what an event affects, each request after its time. Of two times for one request the earlier counts.
func After(affected func(context.Context, client.Object) []reconcile.Request,
	after func(reconcile.Request) time.Duration) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(ctx context.Context, q queue, objects ...client.Object) {
		var all []reconcile.Request
		for _, o := range objects {
			for _, request := range affected(ctx, o) {
				if !slices.Contains(all, request) { // As a rule, an object before and after a change affects the same.
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
