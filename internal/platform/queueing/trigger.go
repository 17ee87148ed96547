// Package queueing triggers the controllers of a process from within the process, without an event from an API server.
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

// Trigger adds objects to the queue of the controller that watches its Source. Trigger never blocks. Objects that are
// enqueued before the controller starts are reconciled at its start. The zero value is ready to use.
type Trigger struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	early map[reconcile.Request]bool
}

// Enqueue makes the controller reconcile an object. Callers may call Enqueue before the controller starts.
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

// Source returns a source that connects the Trigger to the queue of a controller.
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
