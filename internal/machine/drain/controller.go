package drain

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/interruption"
	"machinist.dev/machinist/internal/platform/queueing"
	"machinist.dev/machinist/internal/platform/wiring"
)

const (
	// DefaultWorkers is the default of Options.Workers.
	DefaultWorkers = 32

	// inlineTimeout is the time limit of the check for which the caller of VolumesDetached waits.
	inlineTimeout = 5 * time.Second

	// passTimeout is the time limit of one pass of a worker. A pass takes far less: it stops sending evictions after
	// sendTime, and then waits for at most one more.
	passTimeout = 2 * time.Minute

	// firstRetry and maxRetry are the shortest and the longest time between two passes while the API server does not
	// answer.
	firstRetry = time.Second
	maxRetry   = 30 * time.Second
)

// Options configures a Controller.
type Options struct {
	// Target reads and writes the target cluster without a cache.
	Target client.Client

	// Evict sends evictions, see EvictWith. By default they are sent through Target. A worker is then blocked while the
	// client of Target waits for the API server.
	Evict EvictFunc

	// BudgetReader reads the PodDisruptionBudgets of a namespace, to name those that refuse an eviction. It may be a
	// cache. By default it is Target.
	BudgetReader client.Reader

	// Clock is the clock. By default it is the system's clock.
	Clock clock.PassiveClock

	// Workers is the number of drains that are processed concurrently. Each of them has at most one eviction or deletion
	// in flight. By default it is DefaultWorkers. It is at least 2, so that a slow namespace leaves a worker to others.
	Workers int

	// Signals recognizes Nodes whose instance is about to be removed. By default it is interruption.Known.
	Signals interruption.Signals

	// Metrics is where the metrics are registered. By default they are not registered.
	Metrics prometheus.Registerer

	// Epoch returns a number that changes when the target cluster becomes unreachable and when it becomes reachable again.
	// By default it is always 0.
	//
	// The workers do not process a request of another epoch. They only trigger its machine, because the target cluster is
	// unreachable, or because the times in the request do not exclude an outage yet.
	Epoch func() uint64
}

// Controller drains Nodes and waits for their volumes, on behalf of the Machine reconciler.
//
// The workers continue with a drain until it is done or the caller calls Forget. The caller does so when the machine is
// paused or deleted, when an update in place is complete, or when the Node is to be drained once more. The controller's
// memory may be lost at any time. The controller starts no goroutines, and its API calls and their order depend only on
// its calls, the answers and the clock.
type Controller struct {
	options        Options
	metrics        metrics
	work, triggers queueing.Trigger

	// The following fields are all that a Controller knows and the API does not. Losing them only costs a few calls.
	records     records
	attachments attachments
	daemonSets  daemonSets
	slow        *slowNamespaces
}

// New returns a controller that does nothing until Register and Drain are called.
func New(o Options) *Controller {
	if o.Evict == nil {
		o.Evict = evictThrough(o.Target)
	}
	if o.BudgetReader == nil {
		o.BudgetReader = o.Target
	}
	if o.Signals == nil {
		o.Signals = interruption.Known()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Workers <= 0 {
		o.Workers = DefaultWorkers
	}
	if o.Epoch == nil {
		o.Epoch = func() uint64 { return 0 }
	}
	o.Workers = max(o.Workers, 2)
	return &Controller{
		options:     o,
		metrics:     newMetrics(),
		attachments: attachments{target: o.Target, clock: o.Clock},
		daemonSets:  daemonSets{target: o.Target, clock: o.Clock},
		slow:        newSlowNamespaces(o.Workers),
	}
}

// Register adds the controller with its own workers to a manager. Without events of the target cluster, the controller
// notices within a minute, instead of at once, that a PodDisruptionBudget allows evictions again.
func (c *Controller) Register(mgr manager.Manager, events wiring.TargetEvents) error {
	if c.options.Metrics != nil {
		if err := c.metrics.register(c.options.Metrics); err != nil {
			return err
		}
	}
	return c.Wiring().Add(mgr, events)
}

// Wiring returns what triggers a drain: requests, the times that the drain itself schedules, and changed
// PodDisruptionBudgets.
func (c *Controller) Wiring() wiring.Controller {
	return wiring.Controller{
		Name: "drain", Reconciler: c, Concurrency: c.options.Workers,
		Timeout: passTimeout,
		Retries: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, maxRetry),
		Watches: []wiring.Watch{{Cluster: wiring.Target, Object: &policyv1.PodDisruptionBudget{}, Keys: c.onBudgets()}},
		Sources: []source.Source{c.work.Source()},
	}
}

// Triggers returns a source for the Machine controller. It yields a machine when there is something new to report about
// it.
func (c *Controller) Triggers() source.Source { return c.triggers.Source() }

// Drain reports the progress of the drain of a machine's Node, and lets the workers continue it. It calls no API.
// Errors of the target cluster are part of the outcome; the workers retry.
func (c *Controller) Drain(request Request) Outcome {
	r, changed := c.records.admitDrain(request)
	if why := request.skipReason(); why != "" {
		c.finish(r, v1beta1.ReasonSkipped, why)
	}
	outcome := c.records.outcome(&r.drained)
	if !outcome.Done && changed {
		c.work.Enqueue(request.Machine)
	}
	return outcome
}

// VolumesDetached reports whether the volumes of a drained Node are detached, or need not be waited for any longer, and
// lets the workers check them. The first call checks them at once, mostly without a call to the API server, so that a
// machine without volumes need not wait.
func (c *Controller) VolumesDetached(ctx context.Context, request VolumesRequest) Outcome {
	r, before := c.records.forVolumes(request)
	if request.Force {
		c.records.setOutcome(&r.detached, Outcome{Done: true, Reason: v1beta1.ReasonSkipped,
			Message: "The wait for volumes was ended by the annotation " + v1beta1.AnnotationForceDelete + "."})
	} else if before == nil {
		c.records.setOutcome(&r.detached, c.firstVolumesOutcome(ctx, request))
	}
	c.records.admitVolumes(r, request)
	outcome := c.records.outcome(&r.detached)
	if !outcome.Done && (before == nil || before.Epoch != request.Epoch) {
		c.work.Enqueue(request.Machine)
	}
	return outcome
}

// Forget ends all work for a machine. Evictions that were sent cannot be undone.
func (c *Controller) Forget(machine types.NamespacedName) { c.records.forget(machine) }

// Reconcile makes one pass for a machine: over its drain, or over the wait for its volumes. It triggers the machine if
// the outcome contains something that the last reconciliation of the machine did not see.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	r, drain, volumes := c.records.task(request.NamespacedName)
	var (
		epoch   uint64
		outcome *Outcome
		report  *report
		pass    func() (time.Duration, error)
	)
	switch {
	case drain != nil:
		epoch, outcome, report = drain.Epoch, &r.drained, &r.drainPass.report
		pass = func() (time.Duration, error) { return c.passDrain(ctx, r, *drain) }
	case volumes != nil:
		epoch, outcome, report = volumes.Epoch, &r.detached, &r.volumesPass.report
		pass = func() (time.Duration, error) { return c.passVolumes(ctx, r, *volumes) }
	default:
		return reconcile.Result{}, nil
	}
	if epoch != c.options.Epoch() {
		c.triggers.Enqueue(request.NamespacedName)
		return reconcile.Result{}, nil // The machine sends another request.
	}
	before := c.records.outcome(outcome)
	next, err := pass()
	if err != nil {
		c.reportError(outcome, report, err)
	}
	if !before.sameReport(c.records.outcome(outcome)) {
		c.triggers.Enqueue(request.NamespacedName)
	}
	return reconcile.Result{RequeueAfter: next}, err
}
