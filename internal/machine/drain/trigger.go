package drain

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

// trigger puts machines into a controller's queue. It never blocks, and what is rung before the controller starts is
// kept for it.
type trigger struct {
	// hear, if set, takes the machines instead of a queue.
	hear func(types.NamespacedName)

	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	early map[reconcile.Request]bool
}

func (b *trigger) enqueue(machine types.NamespacedName) {
	if b.hear != nil {
		b.hear(machine)
		return
	}
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

// source connects the trigger with the queue of the controller that watches it.
func (b *trigger) source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.queue = queue
		for _, request := range slices.SortedFunc(maps.Keys(b.early), byName) {
			queue.Add(request)
		}
		b.early = nil
		return nil
	})
}

// inherit keeps for the controller of this trigger what is kept by another one. Who hears the machines itself keeps
// them.
func (b *trigger) inherit(other *trigger) {
	other.mu.Lock()
	defer other.mu.Unlock()
	if b.hear == nil {
		b.early = maps.Clone(other.early)
	}
}

func byName(a, b reconcile.Request) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
