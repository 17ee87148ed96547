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
	"sigs.k8s.io/controller-runtime/pkg/log"
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

	// inlineTimeout is the time limit of the check that VolumesDetached runs while its caller waits.
	inlineTimeout = 5 * time.Second

	// passTimeout is the time limit of one pass of a worker. A normal pass is much shorter, because it sends no more
	// evictions after sendTime.
	passTimeout = 2 * time.Minute

	// firstRetry and maxRetry are the minimum and the maximum time between two passes while the API server does not
	// answer.
	firstRetry = time.Second
	maxRetry   = 30 * time.Second
)

// Options configures a Controller.
type Options struct {
	// Target reads and writes the target cluster without a cache.
	Target client.Client

	// Evict sends evictions, see EvictWith. If the field is nil, evictions are sent through Target. The client of
	// Target may block a worker, because this client waits before it retries a request.
	Evict EvictFunc

	// BudgetReader reads the PodDisruptionBudgets of a namespace. If an eviction is refused, the message contains the
	// names of these budgets. BudgetReader may read from a cache. Default: Target.
	BudgetReader client.Reader

	// Clock is the system's clock by default.
	Clock clock.PassiveClock

	// Workers is the number of drains that are processed concurrently. Each drain has at most one eviction or deletion
	// in progress. Default: DefaultWorkers. The minimum is 2, so that one slow call does not block all other drains.
	Workers int

	// Signals detects Nodes whose instance is about to be removed. By default it is interruption.KnownSignals.
	Signals interruption.Signals

	// Metrics is the registry for the metrics of the Controller. If the field is nil, the Controller registers no
	// metrics.
	Metrics prometheus.Registerer

	// Epoch returns a number that changes when the target cluster becomes unreachable and when it becomes reachable
	// again. If Epoch is nil, the target cluster counts as always reachable.
	//
	// If the number has changed since a request was created, the workers do not process the request. The workers
	// trigger the Machine reconciler, which first extends the deadline in the request by the duration of the outage.
	Epoch func() uint64
}

// Controller drains Nodes and waits for their volumes, on behalf of the Machine reconciler.
//
// A drain continues until it is done or the caller calls Forget. The process may restart at any time, although the
// Controller keeps most of its state only in memory. Controller starts no goroutines. The API calls of the Controller
// and their order depend only on the calls that it receives, the API server's answers and the clock.
type Controller struct {
	options        Options
	metrics        metrics
	work, triggers queueing.Trigger

	// The following fields are the only state that is not stored in the API. If the Controller loses this state, it
	// repeats a few calls, without other consequences.
	records     records
	attachments attachments
	daemonSets  daemonSets
	namespaces  namespaces
	// longCalls contains an element for each call in progress that may take longer than quickTimeout. At most a quarter
	// of the workers may wait for such calls.
	longCalls chan struct{}
}

// New returns a Controller. The Controller does nothing until Register and Drain are called.
func New(o Options) *Controller {
	if o.Evict == nil {
		o.Evict = evictThrough(o.Target)
	}
	if o.BudgetReader == nil {
		o.BudgetReader = o.Target
	}
	if o.Signals == nil {
		o.Signals = interruption.KnownSignals()
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
		namespaces:  namespaces{target: o.Target, clock: o.Clock},
		longCalls:   make(chan struct{}, max(o.Workers/4, 1)),
	}
}

// Register adds the controller with its own workers to a manager. Without watch events, it can take a minute until the
// controller notices that a PodDisruptionBudget allows evictions again.
func (c *Controller) Register(mgr manager.Manager, events wiring.TargetEvents) error {
	if c.options.Metrics != nil {
		if err := c.metrics.register(c.options.Metrics); err != nil {
			return err
		}
	}
	return c.Wiring().Add(mgr, events)
}

// Wiring returns the event sources that trigger a drain: requests, the requeue times of the drain itself, and changes
// of PodDisruptionBudgets.
func (c *Controller) Wiring() wiring.Controller {
	return wiring.Controller{
		Name: "drain", Reconciler: c, Concurrency: c.options.Workers,
		Timeout: passTimeout,
		Retries: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, maxRetry),
		Watches: []wiring.Watch{{Cluster: wiring.Target, Object: &policyv1.PodDisruptionBudget{}, Keys: c.onBudgets()}},
		Sources: []source.Source{c.work.Source()},
	}
}

// Triggers returns a source of the machines whose reported outcome has changed.
func (c *Controller) Triggers() source.Source { return c.triggers.Source() }

// Drain returns the progress of the drain of a machine's Node. Drain makes no API call, because the workers execute
// the drain in the background. If the target cluster returns an error, the workers try again, and the outcome
// contains the error.
func (c *Controller) Drain(request Request) Outcome {
	r, before := c.records.admitDrain(request)
	if why := request.skipReason(); why != "" {
		c.finish(r, v1beta1.ReasonSkipped, why)
	}
	return c.enqueueUnlessDone(r, before, request)
}

// CheckAndDrain is like Drain, but the first call for a Node also runs the first pass of the drain. With CheckAndDrain,
// callers that poll rarely do not have to wait for the drain of an empty Node.
func (c *Controller) CheckAndDrain(ctx context.Context, request Request) Outcome {
	r, before := c.records.admitDrain(request)
	if before == nil { // No worker can have the machine yet.
		if _, err := c.Reconcile(ctx, reconcile.Request{NamespacedName: request.Machine}); err != nil {
			log.FromContext(ctx).Info("The first check of a drain failed", "node", request.Node, "cause", err.Error())
		}
	}
	return c.enqueueUnlessDone(r, before, request)
}

// enqueueUnlessDone returns the outcome of a drain. If the drain is not done and the request has changed,
// enqueueUnlessDone makes a worker check the Node.
func (c *Controller) enqueueUnlessDone(r *record, before *Request, request Request) Outcome {
	outcome := c.records.outcome(&r.drained)
	if !outcome.IsDone && (before == nil || !before.equal(request)) {
		c.work.Enqueue(request.Machine)
	}
	return outcome
}

// VolumesDetached reports whether the wait for the volumes of a drained Node has ended. The workers check the volumes
// in the background. The first call does not wait for a worker to check the volumes, so that a machine without volumes
// continues at once. This check usually needs no API call.
func (c *Controller) VolumesDetached(ctx context.Context, request VolumesRequest) Outcome {
	r, before := c.records.forVolumes(request)
	if request.Force {
		c.records.setOutcome(&r.detached, Outcome{IsDone: true, Reason: v1beta1.ReasonSkipped,
			Message: "The wait for volumes was ended by the annotation " + v1beta1.AnnotationForceDelete + "."})
	} else if before == nil {
		c.records.setOutcome(&r.detached, c.firstVolumesOutcome(ctx, request))
	}
	c.records.admitVolumes(r, request)
	outcome := c.records.outcome(&r.detached)
	if !outcome.IsDone && (before == nil || before.Epoch != request.Epoch) {
		c.work.Enqueue(request.Machine)
	}
	return outcome
}

// Forget stops all work for a machine. Evictions that were sent cannot be undone.
func (c *Controller) Forget(machine types.NamespacedName) { c.records.forget(machine) }

// Reconcile runs one pass for a machine. The pass checks either the drain or the wait for volumes.
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
	after := c.records.outcome(outcome)
	if !before.sameReport(after) {
		c.triggers.Enqueue(request.NamespacedName)
	}
	if drain != nil && after.IsDone {
		if _, _, waiting := c.records.task(request.NamespacedName); waiting != nil {
			// The machine has already requested the wait for volumes, and does not repeat the request.
			c.work.Enqueue(request.NamespacedName)
		}
	}
	return reconcile.Result{RequeueAfter: next}, err
}
