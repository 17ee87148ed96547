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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/wiring"
)

// Name of the controller, of its work queue's metrics and of the reporter of its events.
const Name = "machinedeployment"

// retryConflict is when to look again after a conflict if nothing wakes us before.
const retryConflict = 100 * time.Millisecond

// frozenPoll is how often a deployment that has something to do looks whether the process may do so again.
const frozenPoll = 10 * time.Second

// DefaultConcurrency is the number of deployments worked on at once unless Options say otherwise.
const DefaultConcurrency = 10

// Options are what a Reconciler works with.
type Options struct {
	// Client reads the control cluster from the cache, including this process's own writes of our kinds, and writes it.
	Client client.Client
	// Live reads the control cluster itself.
	Live client.Reader
	// Recorder records events on MachineDeployments.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// MachinesSeen returns the resource version up to which Client's cache of Machines is complete, "" if that is not
	// known: then what depends on it is read live. Register sets it from the manager's cache if it is nil.
	MachineCacheVersion func() string
	// Concurrency is the number of deployments worked on at once. Defaults to DefaultConcurrency.
	Concurrency int
	// Stopped says why this process must neither add nor exchange machines now, as a reason of the condition Frozen and a
	// message for people, for as long as the reason is not empty. Default: it always may.
	Stopped func() (reason, message string)
	// Metrics may be nil.
	Metrics *Metrics
}

// Reconciler brings the MachineSets of MachineDeployments to what they shall be.
type Reconciler struct {
	Options
	shared *sharedState
	echo   *wiring.OwnWrites
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	if o.Concurrency <= 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.Stopped == nil {
		o.Stopped = func() (string, string) { return "", "" }
	}
	return &Reconciler{Options: o, shared: newSharedState(), echo: &wiring.OwnWrites{}}
}

// Register adds the controller to a manager whose cache has the indexes of package index.
func (r *Reconciler) Register(mgr manager.Manager) error {
	if r.MachineCacheVersion == nil {
		r.MachineCacheVersion = wiring.CacheVersion(mgr, &v1beta1.Machine{})
	}
	return r.Wiring().Add(mgr, nil)
}

// Wiring is the one table of what wakes a deployment.
func (r *Reconciler) Wiring() wiring.Controller {
	return wiring.Controller{
		Name: Name, Reconciler: r, Concurrency: r.Concurrency,
		For: &wiring.Watch{Object: &v1beta1.MachineDeployment{}, Predicate: r.echo.Filter(deploymentChanged())},
		Watches: []wiring.Watch{
			wiring.SpecChangesFirst(&v1beta1.MachineDeployment{}),
			{Object: &v1beta1.MachineSet{}, Keys: handler.EnqueueRequestsFromMapFunc(r.deploymentsOfSet), Predicate: setChanged()},
			{Object: &v1beta1.Machine{}, Keys: handler.EnqueueRequestsFromMapFunc(r.deploymentOfMachine), Predicate: machineChanged()},
		},
	}
}

// Reconcile makes one pass over a MachineDeployment.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
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
	p := &pass{Reconciler: r, deployment: d, known: known, now: now}
	err := p.run(ctx)
	known.trusted = !p.unconfirmedWrite && (known.trusted || err == nil && p.cacheConfirmed)
	if apierrors.IsConflict(err) || errors.Is(err, errStale) {
		// Somebody wrote in between; their write wakes us as well, this is only the belt to the braces.
		logf.FromContext(ctx).V(1).Info("Looking again at what has changed meanwhile", "cause", err.Error())
		return reconcile.Result{RequeueAfter: retryConflict}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: p.requeueAfter}, nil
}

// errStale is returned by a pass that found out that the deployment is not what the cache says.
var errStale = errors.New("the cached deployment is out of date")

// current fails with errStale unless the deployment is still, at the API server, what the pass goes by. One that was
// deleted would get sets that nobody counts, and one whose replicas this process, or the one before it, has carried out
// already would be taken back to what it was.
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
