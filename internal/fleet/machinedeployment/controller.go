package machinedeployment

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/platform/freshness"
	"machinist.dev/machinist/internal/platform/tracing"
	"machinist.dev/machinist/internal/platform/wiring"
)

// Name of the controller, of its work queue's metrics and of the reporter of its events.
const Name = "machinedeployment"

// retryConflict is when to retry after a conflict without an event.
const retryConflict = 100 * time.Millisecond

// frozenPoll is how often a deployment that has something to do checks whether the process may do so again.
const frozenPoll = 10 * time.Second

// DefaultConcurrency is the number of deployments worked on at once unless Options say otherwise.
const DefaultConcurrency = 10

// Options are the dependencies and settings of a Reconciler.
type Options struct {
	// Client reads the control cluster from the cache, including this process's own writes of our kinds, and writes it.
	Client client.Client
	// Live reads the control cluster itself.
	Live client.Reader
	// Recorder records events on MachineDeployments.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// MachineCacheVersion returns the resource version up to which Client's cache of Machines is complete, "" if that is
	// not known: then decisions that depend on it read live. Register sets it from the manager's cache if it is nil.
	MachineCacheVersion func() string
	// Concurrency is the number of deployments worked on at once. Defaults to DefaultConcurrency.
	Concurrency int
	// Stopped returns why this process must neither add nor replace machines now, as reason and message of the condition
	// Frozen. An empty reason means that it may. Default: it always may.
	Stopped func() (reason, message string)
	// ServerVersion returns the version of the target cluster's API server, empty while it is unknown. It may ask for it,
	// but not for long. Nil where there is no target cluster.
	ServerVersion func(context.Context) string
	// Ledger says what may be disrupted; nil allows all.
	Ledger *disruption.Ledger
	// Decided records which generations of sets were written by what is in Client's cache; may be nil.
	Decided *freshness.Decisions
	// Metrics may be nil.
	Metrics *Metrics
	// Tracer reports traces; nil where they are off.
	Tracer *tracing.Tracer
}

// Reconciler brings the MachineSets of MachineDeployments to their desired state.
type Reconciler struct {
	Options
	shared    *sharedState
	ownWrites *wiring.OwnWrites
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	if o.Concurrency <= 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.Stopped == nil {
		o.Stopped = func() (string, string) { return "", "" }
	}
	return &Reconciler{Options: o, shared: newSharedState(), ownWrites: &wiring.OwnWrites{}}
}

// Register adds the controller to a manager whose cache has the indexes of package index.
func (r *Reconciler) Register(mgr manager.Manager) error {
	if r.MachineCacheVersion == nil {
		r.MachineCacheVersion = wiring.CacheVersion(mgr, &v1beta1.Machine{})
	}
	return r.Wiring().Add(mgr, nil)
}

// Wiring lists the events that trigger a pass over a deployment.
func (r *Reconciler) Wiring() wiring.Controller {
	return wiring.Controller{
		Name: Name, Reconciler: r, Concurrency: r.Concurrency,
		For: &wiring.Watch{Object: &v1beta1.MachineDeployment{}, Predicate: r.ownWrites.Filter(deploymentChanged())},
		Watches: []wiring.Watch{
			wiring.SpecChangesFirst(&v1beta1.MachineDeployment{}),
			{Object: &v1beta1.MachineDisruptionBudget{}, Keys: handler.EnqueueRequestsFromMapFunc(r.deploymentsOfBudget),
				Predicate: predicate.GenerationChangedPredicate{}},
			{Object: &v1beta1.MachineSet{}, Keys: handler.EnqueueRequestsFromMapFunc(r.deploymentsOfSet),
				Predicate: setChanged()},
			{Object: &v1beta1.Machine{}, Keys: handler.EnqueueRequestsFromMapFunc(r.deploymentOfMachine),
				Predicate: machineChanged()},
			{Object: &v1beta1.Machine{}, Keys: handler.EnqueueRequestsFromMapFunc(r.waitingDeployments),
				Predicate: disruption.Ended()},
		},
	}
}

// Reconcile makes one pass over a MachineDeployment.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.Metrics.lead()
	d := &v1beta1.MachineDeployment{}
	switch err := r.Client.Get(ctx, req.NamespacedName, d); {
	case apierrors.IsNotFound(err):
		r.forget(req)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get the deployment: %w", err)
	}
	if !d.DeletionTimestamp.IsZero() {
		// Its sets and machines go by their owner references.
		r.forget(req)
		return reconcile.Result{}, nil
	}
	now := r.Clock.Now()
	known := r.shared.get(req.NamespacedName, d.UID)
	known.observed(d)
	if wait := known.debounce(d.Generation, r.shared.machineEventsOf(known, false), now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	r.shared.machineEventsOf(known, true)
	p := &pass{Reconciler: r, deployment: d, known: known, now: now, cacheMark: known.cache.Mark()}
	err := p.run(ctx)
	if err == nil && p.cacheConfirmed {
		known.cache.Confirm(p.cacheMark)
	}
	if apierrors.IsConflict(err) || errors.Is(err, errStale) {
		// The other writer's event triggers a pass as well.
		logf.FromContext(ctx).V(1).Info("Retrying after a change by another writer", "cause", err.Error())
		return reconcile.Result{RequeueAfter: retryConflict}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: p.requeueAfter}, nil
}

// errStale is returned by a pass that found the deployment changed since the cache was updated.
var errStale = errors.New("the cached deployment is out of date")

// current fails with errStale unless a live GET returns the deployment as the pass read it. A pass over a deployment
// that was deleted would create sets without an owner, and one over an old version would undo changes that were
// carried out already.
func (p *pass) current(ctx context.Context) error {
	live := &v1beta1.MachineDeployment{}
	switch err := p.Live.Get(ctx, client.ObjectKeyFromObject(p.deployment), live); {
	case apierrors.IsNotFound(err):
		return errStale
	case err != nil:
		return fmt.Errorf("get the deployment live: %w", err)
	case live.UID != p.deployment.UID || live.Generation != p.deployment.Generation || !live.DeletionTimestamp.IsZero():
		return errStale
	}
	return nil
}

func (r *Reconciler) forget(req reconcile.Request) {
	r.shared.forget(req.NamespacedName)
	r.Metrics.forget(req.String())
}
