// Package queueing allows a process to trigger its own controllers. No event from an API server is needed.
package queueing

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Trigger adds objects to the queue of the controller that watches its Source. It never blocks. If an object is
// enqueued before the controller starts, the controller reconciles it after its start. The zero value is ready to use.
type Trigger struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	early map[reconcile.Request]bool
}

// Enqueue makes the controller reconcile an object. It may be called at any time.
func (t *Trigger) Enqueue(object types.NamespacedName) {
	request := reconcile.Request{NamespacedName: object}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queue != nil {
		t.queue.Add(request)
		return
	}
	if t.early == nil {
		t.early = map[reconcile.Request]bool{}
	}
	t.early[request] = true
}

// Source returns the source that connects the trigger with the queue of a controller.
func (t *Trigger) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.queue = queue
		for _, request := range slices.SortedFunc(maps.Keys(t.early), byName) {
			queue.Add(request)
		}
		t.early = nil
		return nil
	})
}

func byName(a, b reconcile.Request) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
