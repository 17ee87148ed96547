package drain

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// bell puts machines into a controller's queue. It never blocks, and what is rung before the controller starts is kept
// for it.
type bell struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	early map[reconcile.Request]bool
}

func (b *bell) ring(machine types.NamespacedName) {
	request := reconcile.Request{NamespacedName: machine}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue != nil {
		b.queue.Add(request)
		return
	}
	if b.early == nil {
		b.early = map[reconcile.Request]bool{}
	}
	b.early[request] = true
}

// source connects the bell with the queue of the controller that watches it.
func (b *bell) source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.queue = queue
		for request := range b.early {
			queue.Add(request)
		}
		b.early = nil
		return nil
	})
}
