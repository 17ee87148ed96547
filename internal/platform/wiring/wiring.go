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

// Cluster is the cluster that contains the objects of a watch.
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
	// Retries limits how often failed passes over a key are repeated. Nil means an exponential delay from FirstRetry to
	// LongestRetry.
	Retries workqueue.TypedRateLimiter[reconcile.Request]
	// For watches the objects that the controller reconciles. Their names are the keys. It is nil if the keys are not
	// names of objects of one kind.
	For *Watch
	// Watches watch other objects whose events affect keys.
	Watches []Watch
	// Sources are sources of events from within the process.
	Sources []source.Source
}

// Watch maps events of one kind of objects to keys.
type Watch struct {
	// Cluster defaults to Control.
	Cluster Cluster
	// Object is an empty object of the kind. It is typed, or a PartialObjectMetadata with its kind set.
	Object client.Object
	// Keys enqueues the affected keys. It defaults to the name of the object.
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

// retries also limits the failed passes over all keys of a controller: retriesAtOnce passes at once, and
// retriesPerSecond passes per second after that.
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

// AllWatches returns For and Watches with their defaults set.
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

// Secrets returns an empty object for watching Secrets. Only the metadata of Secrets is ever cached.
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

// CacheVersion returns a function that returns the resource version of the manager's cache of a kind. The cache
// contains all writes up to this version. The function returns "" if the version is unknown.
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
