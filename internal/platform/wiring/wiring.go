// Package wiring describes which events trigger a controller. The events come from a manager or from a simulated
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

	"machinist.dev/machinist/api/v1beta1"
)

// Cluster names the cluster, Control or Target, from which a Watch gets its events.
type Cluster string

// Names of the two clusters.
const (
	Control Cluster = "control"
	Target  Cluster = "target"
)

// Controller describes one controller and everything that triggers it.
type Controller struct {
	// Name is the name of the controller, in its logs and in the metrics of its queue.
	Name string
	// Reconciler reconciles the keys.
	Reconciler reconcile.Reconciler
	// Concurrency is the maximum number of keys that are reconciled at the same time.
	Concurrency int
	// Timeout is the maximum duration of one pass. Zero means no limit.
	Timeout time.Duration
	// Retries is the rate limiter for repeated passes after errors. Nil means an exponential delay from FirstRetry to
	// LongestRetry.
	Retries workqueue.TypedRateLimiter[reconcile.Request]
	// For describes the objects that the controller reconciles. The names of these objects are the keys. The field is
	// nil if the keys are not names of objects of one kind.
	For *Watch
	// Watches describes the other objects whose events trigger passes of the controller.
	Watches []Watch
	// Sources provides events that come from within the process instead of from an API server.
	Sources []source.Source
}

// Watch maps events of one kind of objects to keys.
type Watch struct {
	// Cluster defaults to Control.
	Cluster Cluster
	// Object is an empty object of the kind. The object is typed, or a PartialObjectMetadata with its kind set.
	Object client.Object
	// Keys enqueues the affected keys. Keys defaults to the name of the object.
	Keys handler.EventHandler
	// Predicate drops events that are irrelevant to the controller. Nil drops none.
	Predicate predicate.Predicate
}

// FirstRetry and LongestRetry limit the delay between two failed passes over a key. The longest delay is only a minute,
// because no event reports the end of an outage of the API server.
const (
	FirstRetry   = 5 * time.Millisecond
	LongestRetry = time.Minute
)

// retries returns the default rate limiter. Each key has its own delay. A second limit applies to all keys of a
// controller: at most retriesPerSecond repeated passes, with a burst of retriesAtOnce.
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

// TargetEvents returns a source of events of the target cluster.
type TargetEvents func(object client.Object, keys handler.EventHandler, changes ...predicate.Predicate) source.Source

// AllWatches returns the watches in the fields For and Watches, with the default values of their fields set.
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

// Add adds the controller to a manager of the control cluster. Without a target cluster, events is nil, and Add omits
// the watches of the target cluster.
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

// Secrets returns the object to pass to a watch of Secrets. Caches contain only the metadata of Secrets.
func Secrets() *metav1.PartialObjectMetadata {
	secret := &metav1.PartialObjectMetadata{}
	secret.APIVersion, secret.Kind = "v1", "Secret"
	return secret
}

// MachineSets returns an empty object for watching the metadata of MachineSets.
func MachineSets() *metav1.PartialObjectMetadata {
	set := &metav1.PartialObjectMetadata{}
	set.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineSet"))
	return set
}

// CacheVersion returns a function for the resource version that the manager's cache has reached for the given kind. The
// cache contains all writes up to this version. The function returns "" if the version is unknown.
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
