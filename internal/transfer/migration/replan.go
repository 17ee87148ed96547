package migration

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	ctrlsource "sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
)

// replanDelay is the time from a change of an old object to the next plan. Changes during this time cause one plan.
const replanDelay = time.Second

// replanner watches the old objects of Migrations in the phase Planning, so that their plans follow changes.
type replanner struct {
	changes chan event.GenericEvent

	mu      sync.Mutex
	watches sync.Map // an oldWatch for the NamespacedName of each Migration
	delays  map[types.NamespacedName]time.Duration
}

type oldWatch struct {
	migration types.UID
	stop      context.CancelFunc
}

// ChangesOfOldObjects is the source of requests for Migrations whose old objects have changed.
func (r *Reconciler) ChangesOfOldObjects() ctrlsource.Source {
	return ctrlsource.Channel(r.replan.changes, handler.Funcs{GenericFunc: func(_ context.Context, e event.GenericEvent,
		queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		key := client.ObjectKeyFromObject(e.Object)
		queue.AddAfter(reconcile.Request{NamespacedName: key}, r.replan.delay(key))
	}})
}

// delay returns the time from a change of an old object to the next plan of a Migration.
func (p *replanner) delay(key types.NamespacedName) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(replanDelay, p.delays[key])
}

// planned sets the delay of the next plan. Plans of a large fleet take long. If its objects change all the time, the
// migrator still rests between two plans. After a failed plan, a change causes no plan earlier than in Timing.Replan.
func (r *Reconciler) planned(m *v1beta1.Migration, start time.Time, err error) {
	r.replan.mu.Lock()
	defer r.replan.mu.Unlock()
	key, delay := client.ObjectKeyFromObject(m), 2*r.Clock.Since(start)
	if err != nil {
		delay = max(r.replan.delays[key], r.Timing.Replan)
	}
	r.replan.delays[key] = delay
}

// watchOldObjects starts to watch the old objects of a Migration, unless it already watches them.
func (r *Reconciler) watchOldObjects(ctx context.Context, m *v1beta1.Migration, system source.System) {
	key := client.ObjectKeyFromObject(m)
	r.replan.mu.Lock()
	defer r.replan.mu.Unlock()
	watched, found := r.replan.watches.Load(key)
	if r.Watch == nil || found && watched.(oldWatch).migration == m.UID {
		return
	}
	if found {
		watched.(oldWatch).stop()
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // The watch outlasts the pass.
	r.replan.watches.Store(key, oldWatch{m.UID, stop})
	for _, kind := range system.Kinds() {
		go utilwait.UntilWithContext(ctx, func(ctx context.Context) {
			if err := r.watchKind(ctx, m, kind); err != nil {
				logf.FromContext(ctx).V(1).Info("Cannot watch old objects", "kind", kind.Kind, "error", err.Error())
			}
		}, r.Timing.Replan)
	}
}

// watchKind sends an event for each change of an old kind until the API server ends the watch. At the beginning, the
// API server sends all existing objects, so no change is missed between two watches.
func (r *Reconciler) watchKind(ctx context.Context, m *v1beta1.Migration, kind source.Kind) error {
	var options []client.ListOption
	if !kind.ClusterScoped {
		options = append(options, client.InNamespace(m.SourceNamespaceOrDefault()))
	}
	begin := func() (watch.Interface, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return r.Watch.Watch(ctx, list, options...)
	}
	changes, err := begin()
	for _, version := range kind.OlderVersions {
		if notServed(err) {
			kind.Version = version
			changes, err = begin()
		}
	}
	if err != nil {
		return err
	}
	defer changes.Stop()
	for {
		select {
		case _, open := <-changes.ResultChan():
			if !open {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
		select {
		case r.replan.changes <- event.GenericEvent{Object: m}:
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *Reconciler) stopWatching(key types.NamespacedName) {
	r.replan.mu.Lock()
	defer r.replan.mu.Unlock()
	delete(r.replan.delays, key)
	if watched, found := r.replan.watches.LoadAndDelete(key); found {
		watched.(oldWatch).stop()
	}
}
