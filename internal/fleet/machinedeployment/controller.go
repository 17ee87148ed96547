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
	"machinist.dev/machinist/internal/fleet/placement/places"
	"machinist.dev/machinist/internal/platform/freshness"
	"machinist.dev/machinist/internal/platform/tracing"
	"machinist.dev/machinist/internal/platform/wiring"
)

// Name is the name of the controller, which is also used in the metrics of its work queue and in its events.
const Name = "machinedeployment"

const retryConflict = 100 * time.Millisecond

// frozenPoll is how often a frozen deployment checks whether the process may add and replace machines again.
const frozenPoll = 10 * time.Second

// DefaultConcurrency is the default of Options.Concurrency.
const DefaultConcurrency = 10

// Options are the dependencies and settings of a Reconciler.
type Options struct {
	// Client reads the control cluster from the cache, including this process's own writes, and writes to it.
	Client client.Client
	// LiveReader reads from the API server of the control cluster, without a cache.
	LiveReader client.Reader
	// Recorder records events on MachineDeployments.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// MachineCacheVersion returns the resource version up to which Client's cache of Machines is complete, or "" if
	// unknown. With an unknown version, the controller uses live reads. If the field is nil, Register sets it to a
	// function that reads the version of the manager's cache.
	MachineCacheVersion func() string
	// Concurrency is the maximum number of deployments that are reconciled in parallel. Defaults to DefaultConcurrency.
	Concurrency int
	// StopReason returns the reason and message of the condition Frozen if this process must neither add nor replace
	// machines. If machines may be added and replaced, the reason is empty. The field may be nil.
	StopReason func() (reason, message string)
	// ServerVersion returns the version of the target cluster's API server, or "" if unknown. ServerVersion may send
	// a request but must not block for long. The field is nil without a target cluster.
	ServerVersion func(context.Context) string
	// NoOutdatedTaints turns off taints on the Nodes of old revisions during a rollout. Existing taints are removed.
	NoOutdatedTaints bool
	// Ledger decides which machines may be disrupted. A nil Ledger allows all.
	Ledger *disruption.Ledger
	// Decisions is the record of all generations of sets that this process wrote on the basis of its cache. It may be
	// nil.
	Decisions *freshness.Decisions
	// Metrics may be nil.
	Metrics *Metrics
	// Tracer reports traces. It is nil if traces are off.
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
	if o.StopReason == nil {
		o.StopReason = func() (string, string) { return "", "" }
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

// Wiring returns the controller with the watches that trigger a pass over a deployment.
func (r *Reconciler) Wiring() wiring.Controller {
	return wiring.Controller{
		Name: Name, Reconciler: r, Concurrency: r.Concurrency,
		For: &wiring.Watch{Object: &v1beta1.MachineDeployment{}, Predicate: r.ownWrites.Filter(deploymentChanged())},
		Watches: []wiring.Watch{
			wiring.SpecChangesFirst(&v1beta1.MachineDeployment{}),
			{Object: &v1beta1.MachineDisruptionBudget{}, Keys: handler.EnqueueRequestsFromMapFunc(r.deploymentsOfBudget),
				Predicate: predicate.GenerationChangedPredicate{}},
			{Object: &v1beta1.MachineClass{}, Keys: handler.EnqueueRequestsFromMapFunc(r.deploymentsOfClass),
				Predicate: places.CapacityChanged()},
			{Object: &v1beta1.MachineSet{}, Keys: handler.EnqueueRequestsFromMapFunc(r.deploymentsOfSet),
				Predicate: setChanged()},
			{Object: &v1beta1.Machine{}, Keys: handler.EnqueueRequestsFromMapFunc(r.deploymentOfMachine),
				Predicate: machineChanged()},
			{Object: &v1beta1.Machine{}, Keys: handler.EnqueueRequestsFromMapFunc(r.waitingDeployments),
				Predicate: disruption.EndPredicate()},
		},
	}
}

// Reconcile runs one pass over a MachineDeployment.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.Metrics.enable()
	d := &v1beta1.MachineDeployment{}
	switch err := r.Client.Get(ctx, req.NamespacedName, d); {
	case apierrors.IsNotFound(err):
		r.forget(req)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get the deployment: %w", err)
	}
	if !d.DeletionTimestamp.IsZero() {
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
		logf.FromContext(ctx).V(1).Info("Retrying after a change by another client", "cause", err.Error())
		return reconcile.Result{RequeueAfter: retryConflict}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: p.requeueAfter}, nil
}

var errStale = errors.New("the cached deployment is out of date")

// checkCurrent returns errStale unless the API server has the same generation of the deployment as the cache. A pass
// over a deleted deployment would create sets without an owner. A pass over an old version would undo changes.
func (p *pass) checkCurrent(ctx context.Context) error {
	live := &v1beta1.MachineDeployment{}
	switch err := p.LiveReader.Get(ctx, client.ObjectKeyFromObject(p.deployment), live); {
	case apierrors.IsNotFound(err):
		return errStale
	case err != nil:
		return fmt.Errorf("read the deployment from the API server: %w", err)
	case live.UID != p.deployment.UID || live.Generation != p.deployment.Generation || !live.DeletionTimestamp.IsZero():
		return errStale
	}
	return nil
}

func (r *Reconciler) forget(req reconcile.Request) {
	r.shared.forget(req.NamespacedName)
	r.Metrics.forget(req.String())
}
