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
	// DefaultWorkers is how many drains are checked at the same time.
	DefaultWorkers = 32

	// DefaultConcurrentEvictions is how many drains send evictions at the same time.
	DefaultConcurrentEvictions = 16

	// inlineTimeout bounds the look that the caller of Drain or VolumesDetached waits for.
	inlineTimeout = 5 * time.Second

	// passTimeout bounds one pass of a worker. It is far more than a pass takes: the sending of evictions ends after
	// sendTime and one more.
	passTimeout = 2 * time.Minute

	// firstRetry and maxRetry bound the time between two passes that fail since the API server does not answer.
	firstRetry = time.Second
	maxRetry   = 30 * time.Second
)

// Options of a Controller.
type Options struct {
	// Target reads and writes the target cluster, without a cache.
	Target client.Client

	// Evict sends evictions, see EvictWith. By default they go through Target, whose own waits for the API server then
	// hold a worker.
	Evict EvictFunc

	// BudgetReader reads the PodDisruptionBudgets of a namespace, to name those that refuse an eviction, by default
	// through Target. It may be a cache.
	BudgetReader client.Reader

	// Clock tells the time, by default the system's.
	Clock clock.PassiveClock

	// Workers is how many drains are checked at the same time, by default DefaultWorkers. There are always half as many
	// again as Evictions has places, so that evictions that hang leave workers to others.
	Workers int

	// Evictions bounds how many drains send evictions at the same time, by default to DefaultConcurrentEvictions. A drain
	// sends them one after the other, so that this is also the number of evictions in flight. Those that hang do not
	// count.
	Evictions *queueing.Slots

	// Signals are how a Node shows that its instance is about to be removed. Default interruption.Known.
	Signals interruption.Signals

	// Metrics is where the metrics are registered, by default nowhere.
	Metrics prometheus.Registerer

	// Epoch changes when the target cluster becomes unreachable and when it comes back. While a request is of another
	// epoch nothing is done for it but to trigger its machine: the target cluster cannot be reached, or times were
	// reckoned before an outage that must be left out. By default there is one epoch, 0.
	Epoch func() uint64
}

// Controller drains Nodes and waits for their volumes, for the Machine reconciler.
//
// Who has asked for a drain says when it is no longer wanted (the machine is paused or gone, or an update in place is
// over): until Forget, the workers go on. The memory may be lost at any time. It starts no goroutine of its own, and
// what it asks of the API and in which order follows from its calls, the answers and the clock alone.
type Controller struct {
	options        Options
	metrics        metrics
	work, triggers queueing.Trigger

	// What follows is all that a Controller knows and the API does not. Losing it costs nothing but a few calls.
	drainStates drainStates
	rejections  rejections
	attachments attachments
	daemonSets  daemonSets
	calls       *calls
	evictions   *queueing.Slots
}

// New returns a controller that does nothing until Register and Drain.
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

// Register adds the controller with its own workers to a manager. Without events of the target cluster, a
// PodDisruptionBudget that allows evictions again is noticed within a minute instead of at once.
func (c *Controller) Register(mgr manager.Manager, events wiring.TargetEvents) error {
	if c.options.Metrics != nil {
		if err := c.metrics.register(c.options.Metrics); err != nil {
			return err
		}
	}
	return c.Wiring().Add(mgr, events)
}

// Wiring is the one table of what triggers a drain: who asks for one, its own times, and a PodDisruptionBudget that
// changes.
func (c *Controller) Wiring() wiring.Controller {
	return wiring.Controller{
		Name: "drain", Reconciler: c, Concurrency: c.options.Workers,
		Timeout: passTimeout,
		Retries: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, maxRetry),
		Watches: []wiring.Watch{{Cluster: wiring.Target, Object: &policyv1.PodDisruptionBudget{}, Keys: c.onBudgets()}},
		Sources: []source.Source{c.work.Source(), c.evictions.Source()},
	}
}

// Triggers is a source for the controller of Machines: a machine whenever there is something new to report of it.
func (c *Controller) Triggers() source.Source { return c.triggers.Source() }

// Drain reports where the drain of a machine's Node stands, and makes sure that it is being worked on. Its first call
// checks the Node at once, so that one without pods to evict is done in the same pass; later ones report what the
// workers have found. Errors of the target cluster are part of the outcome: the workers try again.
func (c *Controller) Drain(ctx context.Context, request Request) Outcome {
	r, first, changed := c.drainStates.admitDrain(request)
	if why := request.needless(); why != "" {
		c.finish(r, request, v1beta1.ReasonSkipped, why)
	} else if first && r.busy.TryLock() {
		defer r.busy.Unlock()
		ctx, cancel := context.WithTimeout(ctx, inlineTimeout)
		defer cancel()
		c.firstRecheck(ctx, r, request)
	}
	outcome := c.drainStates.drainOutcomeOf(r)
	if !outcome.Done && (first || changed) {
		c.work.Enqueue(request.Machine)
	}
	return outcome
}

// VolumesDetached reports whether the volumes of a drained Node are detached, or need not be waited for any longer, and
// makes sure that they are being checked. Like Drain, it checks once when it is called for the first time.
func (c *Controller) VolumesDetached(ctx context.Context, request VolumesRequest) Outcome {
	_, _, waiting := c.drainStates.task(request.Machine)
	renewed := waiting != nil && waiting.Epoch != request.Epoch
	r, first := c.drainStates.admitVolumes(request)
	if why := request.needless(); why != "" {
		c.drainStates.setVolumesOutcome(r, Outcome{Done: true, Reason: v1beta1.ReasonSkipped, Message: why})
	} else if first && r.busy.TryLock() {
		defer r.busy.Unlock()
		ctx, cancel := context.WithTimeout(ctx, inlineTimeout)
		defer cancel()
		c.firstVolumes(ctx, r, request)
	}
	outcome := c.drainStates.volumesOutcomeOf(r)
	if !outcome.Done && (first || renewed) {
		c.work.Enqueue(request.Machine)
	}
	return outcome
}

// Forget ends all work for a machine. What was sent stays sent.
func (c *Controller) Forget(machine types.NamespacedName) {
	c.drainStates.forget(machine)
	c.rejections.set(machine, nil, c.options.Clock.Now())
	c.evictions.Withdraw(machine)
}

// Reconcile makes one pass for a machine: of its drain, or of the wait for its volumes.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	r, drain, volumes := c.drainStates.task(request.NamespacedName)
	if drain == nil && volumes == nil {
		// Whoever was forgotten while it asked for a place must not keep others from it.
		c.evictions.Withdraw(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	if c.outdated(drain, volumes) {
		c.evictions.Withdraw(request.NamespacedName)
		c.triggers.Enqueue(request.NamespacedName)
		return reconcile.Result{}, nil // The machine asks again.
	}
	if !r.busy.TryLock() {
		// The caller of Drain is looking just now.
		return reconcile.Result{RequeueAfter: firstRecheck}, nil
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

// outdated reports whether the one of the requests that there is comes from another epoch.
func (c *Controller) outdated(drain *Request, volumes *VolumesRequest) bool {
	epoch := c.options.Epoch()
	return drain != nil && drain.Epoch != epoch || volumes != nil && volumes.Epoch != epoch
}

// notifyIfChanged triggers the machine when there is something to write down that its last pass has not seen.
func (c *Controller) notifyIfChanged(request reconcile.Request, before, after Outcome) {
	if !before.looksLike(after) {
		c.triggers.Enqueue(request.NamespacedName)
	}
}

// onBudgets triggers the drains that wait for a PodDisruptionBudget that has changed.
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

// budgetChanged tries as many of the pods that the budget held up as it now allows to be disrupted.
func (c *Controller) budgetChanged(budget *policyv1.PodDisruptionBudget) {
	if budget.Status.ObservedGeneration < budget.Generation || budget.Status.DisruptionsAllowed <= 0 {
		return
	}
	c.retry(types.NamespacedName{Namespace: budget.Namespace, Name: budget.Name}, int(budget.Status.DisruptionsAllowed))
}

func (c *Controller) retry(budget types.NamespacedName, n int) {
	for _, pod := range c.rejections.longest(budget, n) {
		c.drainStates.notify(pod.machine, pod.pod)
		c.work.Enqueue(pod.machine)
	}
}
