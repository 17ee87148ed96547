package orphans

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/internal/wiring"
)

// Wiring returns what triggers the Collector: its start, and from then on itself. Its one key says nothing.
func (c *Collector) Wiring() wiring.Controller {
	start := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: "orphans"}})
		return nil
	})
	return wiring.Controller{Name: "orphans", Reconciler: c, Concurrency: 1, Sources: []source.Source{start}}
}
