package drain

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
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

	// DefaultConcurrentEvictions is the default limit of Options.Evictions.
	DefaultConcurrentEvictions = 16

	// inlineTimeout is the time limit of the check for which the caller of Drain or VolumesDetached waits.
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

	// Workers is the number of drains that are checked concurrently. By default it is DefaultWorkers. It is always at
	// least 1.5 times the limit of Evictions, so that evictions that hang leave workers for other drains.
	Workers int

	// Evictions limits how many drains send evictions concurrently, by default to DefaultConcurrentEvictions. A drain
	// sends one eviction at a time, so this also limits the number of evictions in flight. Evictions that hang do not
	// count.
	Evictions *queueing.Slots

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
// paused or deleted, or when an update in place is complete. The controller's memory may be lost at any time. The
// controller starts no goroutines, and its API calls and their order depend only on its calls, the answers and the
// clock.
type Controller struct {
	options        Options
	metrics        metrics
	work, triggers queueing.Trigger

	// Only the following fields are state of a Controller that is not in the API. If this state is lost, the Controller
	// only makes a few more calls.
	drainStates drainStates
	rejections  rejections
	attachments attachments
	daemonSets  daemonSets
	calls       *calls
	evictions   *queueing.Slots
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
	if o.Evictions == nil {
		o.Evictions = queueing.NewSlots(DefaultConcurrentEvictions)
	}
	slots := o.Evictions.Limit()
	o.Workers = max(o.Workers, slots+(slots+1)/2)
	return &Controller{
		options:     o,
		metrics:     newMetrics(),
		attachments: attachments{target: o.Target, clock: o.Clock},
		daemonSets:  daemonSets{target: o.Target, clock: o.Clock},
		calls:       newCalls(slots),
		evictions:   o.Evictions,
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
		Sources: []source.Source{c.work.Source(), c.evictions.Source()},
	}
}

// Triggers returns a source for the Machine controller. It yields a machine when there is something new to report about
// it.
func (c *Controller) Triggers() source.Source { return c.triggers.Source() }

// Drain reports the progress of the drain of a machine's Node, and lets the workers continue it. The first call checks
// the Node at once, so that a node without pods to evict is done in the same reconciliation. Later calls report what
// the workers have found. Errors of the target cluster are part of the outcome; the workers retry.
func (c *Controller) Drain(ctx context.Context, request Request) Outcome {
	r, first, changed := c.drainStates.admitDrain(request)
	if why := request.skipReason(); why != "" {
		c.finish(r, request, v1beta1.ReasonSkipped, why)
	} else if first && r.busy.TryLock() {
		defer r.busy.Unlock()
		ctx, cancel := context.WithTimeout(ctx, inlineTimeout)
		defer cancel()
		c.checkInline(ctx, r, request)
	}
	outcome := c.drainStates.drainOutcomeOf(r)
	if !outcome.Done && (first || changed) {
		c.work.Enqueue(request.Machine)
	}
	return outcome
}

// VolumesDetached reports whether the volumes of a drained Node are detached, or need not be waited for any longer, and
// lets the workers check them. Like Drain, its first call checks the volumes at once.
func (c *Controller) VolumesDetached(ctx context.Context, request VolumesRequest) Outcome {
	_, _, waiting := c.drainStates.task(request.Machine)
	renewed := waiting != nil && waiting.Epoch != request.Epoch
	r, first := c.drainStates.admitVolumes(request)
	if why := request.skipReason(); why != "" {
		c.drainStates.setVolumesOutcome(r, Outcome{Done: true, Reason: v1beta1.ReasonSkipped, Message: why})
	} else if first && r.busy.TryLock() {
		defer r.busy.Unlock()
		ctx, cancel := context.WithTimeout(ctx, inlineTimeout)
		defer cancel()
		c.checkVolumesInline(ctx, r, request)
	}
	outcome := c.drainStates.volumesOutcomeOf(r)
	if !outcome.Done && (first || renewed) {
		c.work.Enqueue(request.Machine)
	}
	return outcome
}

// Forget ends all work for a machine. Evictions that were sent cannot be undone.
func (c *Controller) Forget(machine types.NamespacedName) {
	c.drainStates.forget(machine)
	c.rejections.set(machine, nil, c.options.Clock.Now())
	c.evictions.Withdraw(machine)
}

// Reconcile makes one pass for a machine: over its drain, or over the wait for its volumes.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	r, drain, volumes := c.drainStates.task(request.NamespacedName)
	if drain == nil && volumes == nil {
		// A machine that was forgotten while it waited for a slot must not keep others from it.
		c.evictions.Withdraw(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	if c.outdated(drain, volumes) {
		c.evictions.Withdraw(request.NamespacedName)
		c.triggers.Enqueue(request.NamespacedName)
		return reconcile.Result{}, nil // The machine sends another request.
	}
	if !r.busy.TryLock() {
		// The caller of Drain is checking the node at the moment.
		return reconcile.Result{RequeueAfter: minRecheck}, nil
	}
	defer r.busy.Unlock()
	if drain != nil {
		before := c.drainStates.drainOutcomeOf(r)
		next, err := c.passDrain(ctx, r, *drain)
		c.notifyIfChanged(request, before, c.drainStates.drainOutcomeOf(r))
		return reconcile.Result{RequeueAfter: next}, err
	}
	before := c.drainStates.volumesOutcomeOf(r)
	next, err := c.passVolumes(ctx, r, *volumes)
	c.notifyIfChanged(request, before, c.drainStates.volumesOutcomeOf(r))
	return reconcile.Result{RequeueAfter: next}, err
}

// outdated reports whether the request, of which one is nil, comes from another epoch.
func (c *Controller) outdated(drain *Request, volumes *VolumesRequest) bool {
	epoch := c.options.Epoch()
	return drain != nil && drain.Epoch != epoch || volumes != nil && volumes.Epoch != epoch
}

// notifyIfChanged triggers the machine if the outcome contains something that its last reconciliation did not see.
func (c *Controller) notifyIfChanged(request reconcile.Request, before, after Outcome) {
	if !before.sameReport(after) {
		c.triggers.Enqueue(request.NamespacedName)
	}
}

// onBudgets returns a handler that triggers the drains that wait for a PodDisruptionBudget which has changed.
func (c *Controller) onBudgets() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	changed := func(o client.Object) {
		if budget, ok := o.(*policyv1.PodDisruptionBudget); ok {
			c.budgetChanged(budget)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ queue) { changed(e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ queue) { changed(e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) {
			c.retry(client.ObjectKeyFromObject(e.Object), math.MaxInt)
		},
	}
}

// budgetChanged retries the pods that the budget blocks, at most as many as it now allows to be disrupted.
func (c *Controller) budgetChanged(budget *policyv1.PodDisruptionBudget) {
	if budget.Status.ObservedGeneration < budget.Generation || budget.Status.DisruptionsAllowed <= 0 {
		return
	}
	c.retry(types.NamespacedName{Namespace: budget.Namespace, Name: budget.Name}, int(budget.Status.DisruptionsAllowed))
}

func (c *Controller) retry(budget types.NamespacedName, n int) {
	for _, pod := range c.rejections.longestBlocked(budget, n) {
		c.drainStates.markForRetry(pod.machine, pod.pod)
		c.work.Enqueue(pod.machine)
	}
}
