// Package wiring describes what triggers a controller, apart from who brings the events: a manager, or a simulated
// process.
package wiring

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Cluster is where the objects of a watch are.
type Cluster string

// The two clusters.
const (
	Control Cluster = "control"
	Target  Cluster = "target"
)

// Controller is all that triggers one controller.
type Controller struct {
	// Name of the controller, of its queue's metrics and in its logs.
	Name string
	// Reconciler is what is triggered.
	Reconciler reconcile.Reconciler
	// Concurrency is the number of keys worked on at once.
	Concurrency int
	// Timeout bounds one pass; zero is for ever.
	Timeout time.Duration
	// Retries spaces the passes over a key that fail. Nil is from FirstRetry doubling to LongestRetry.
	Retries workqueue.TypedRateLimiter[reconcile.Request]
	// For are the objects that the keys name; nil where there is no one kind of them.
	For *Watch
	// Watches are other objects whose events concern keys.
	Watches []Watch
	// Sources are events that come from within the process.
	Sources []source.Source
}

// Watch says those that the events of one kind of objects concern.
type Watch struct {
	// Cluster defaults to Control.
	Cluster Cluster
	// Object is an empty one of the kind: typed, or a PartialObjectMetadata with its kind set where only metadata is used.
	Object client.Object
	// Keys enqueues those concerned. It defaults to the object's own name.
	Keys handler.EventHandler
	// Predicate drops events that are no change to the controller; nil lets all through.
	Predicate predicate.Predicate
}

// FirstRetry and LongestRetry bound the time between two passes over a key that fail. Every event of a key that is in
// trouble is another failure, so that the longest is soon reached; it is short, since the trouble of an API server
// ends unannounced.
const (
	FirstRetry   = 5 * time.Millisecond
	LongestRetry = time.Minute
)

// retries also bounds how many passes all keys of a controller that fail make: retriesPerSecond, and retriesAtOnce
// before.
func retries() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](FirstRetry, LongestRetry),
		&workqueue.TypedBucketRateLimiter[reconcile.Request]{Limiter: rate.NewLimiter(retriesPerSecond, retriesAtOnce)},
	)
}

const (
	retriesPerSecond = 100
	retriesAtOnce    = 1000
)

// TargetEvents makes a source of events of the target cluster.
type TargetEvents func(object client.Object, keys handler.EventHandler, changes ...predicate.Predicate) source.Source

// AllWatches returns For and Watches with their defaults filled in.
func (t Controller) AllWatches() []Watch {
	var all []Watch
	if t.For != nil {
		all = append(all, *t.For)
	}
	all = append(all, t.Watches...)
	for i := range all {
		if all[i].Cluster == "" {
			all[i].Cluster = Control
		}
		if all[i].Keys == nil {
			all[i].Keys = &handler.EnqueueRequestForObject{}
		}
		if all[i].Predicate == nil {
			all[i].Predicate = predicate.Funcs{}
		}
	}
	return all
}

// Add makes a manager of the control cluster run the controller. Where there is no target cluster, events is nil and
// the watches of its objects are left out.
func (t Controller) Add(mgr manager.Manager, events TargetEvents) error {
	if t.Retries == nil {
		t.Retries = retries()
	}
	b := builder.ControllerManagedBy(mgr).Named(t.Name).WithOptions(controller.Options{
		MaxConcurrentReconciles: t.Concurrency, ReconciliationTimeout: t.Timeout, RateLimiter: t.Retries,
	})
	for i, w := range t.AllWatches() {
		switch changes := builder.WithPredicates(w.Predicate); {
		case w.Cluster == Target:
			if events != nil {
				b = b.WatchesRawSource(events(w.Object, w.Keys, w.Predicate))
			}
		case t.For != nil && i == 0:
			b = b.For(w.Object, changes)
		default:
			b = b.Watches(w.Object, w.Keys, changes)
		}
	}
	for _, s := range t.Sources {
		b = b.WatchesRawSource(s)
	}
	if err := b.Complete(t.Reconciler); err != nil {
		return fmt.Errorf("add the controller %s: %w", t.Name, err)
	}
	return nil
}

// Secrets returns an empty object for watching Secrets, of which only the metadata is ever cached.
func Secrets() *metav1.PartialObjectMetadata {
	secret := &metav1.PartialObjectMetadata{}
	secret.APIVersion, secret.Kind = "v1", "Secret"
	return secret
}

// CacheVersion returns a function that tells up to which resource version the manager's cache of a kind is complete,
// "" if that is not known.
func CacheVersion(mgr manager.Manager, kind client.Object) func() string {
	return func() string {
		informer, err := mgr.GetCache().GetInformer(context.Background(), kind)
		if err != nil {
			return ""
		}
		stored, ok := informer.(interface{ GetStore() toolscache.Store })
		if !ok {
			return ""
		}
		return stored.GetStore().LastStoreSyncResourceVersion()
	}
}
