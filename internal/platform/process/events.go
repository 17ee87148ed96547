package process

import (
	"context"
	"fmt"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Events returns a source of the events of a cached kind that never holds up the start of a controller: where the
// cluster is unreachable, its events come when it is there and its cache was filled. Controllers use it for the
// target cluster's kinds.
func Events[T client.Object](c *Cluster, object T, h handler.TypedEventHandler[T, reconcile.Request],
	p ...predicate.TypedPredicate[T]) source.Source {
	return later{Source: source.Kind(c.Cache, object, h, p...), after: c.filled}
}

// later is a source that starts after something happened. A controller waits for it no more than for that: one whose
// source is not ready in time would end the process.
type later struct {
	source.Source
	after <-chan struct{}
}

// Start implements source.Source.
func (l later) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go func() {
		select {
		case <-l.after:
			if err := l.Source.Start(ctx, queue); err != nil {
				ctrllog.FromContext(ctx).Error(err, "No events will come", "source", l.String())
			}
		case <-ctx.Done():
		}
	}()
	return nil
}

func (l later) String() string { return fmt.Sprintf("%s, when the cluster is there", l.Source) }
