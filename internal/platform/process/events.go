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

// Events returns a source of events about objects of a cached kind. The start of a controller does not wait for this
// source. The source delivers no events until the cache of the cluster has been filled. Controllers use it for the
// target cluster, which may be unreachable.
func Events[T client.Object](c *Cluster, object T, h handler.TypedEventHandler[T, reconcile.Request],
	p ...predicate.TypedPredicate[T]) source.Source {
	return delayedSource{Source: source.Kind(c.Cache, object, h, p...), after: c.cacheFilled}
}

// delayedSource starts a source in the background when a channel is closed. A controller that waited for the source
// would end the process after a timeout.
type delayedSource struct {
	source.Source
	after <-chan struct{}
}

// Start implements source.Source.
func (s delayedSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go func() {
		select {
		case <-s.after:
			if err := s.Source.Start(ctx, queue); err != nil {
				ctrllog.FromContext(ctx).Error(err, "Cannot start an event source: the controller gets none of its events", "source", s.String())
			}
		case <-ctx.Done():
		}
	}()
	return nil
}

func (s delayedSource) String() string {
	return fmt.Sprintf("%s, once the cluster is reachable", s.Source)
}
