package orphans

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/health/orphans/ledger"
	"machinist.dev/machinist/internal/platform/wiring"
	"machinist.dev/machinist/pkg/provider"
)

// Defaults of Rules.
const (
	DefaultPeriod     = 30 * time.Minute
	DefaultMinAge     = v1beta1.DefaultCreationTimeout
	DefaultMaxDeletes = 10
)

// stabilityPollInterval is the time between two calls of StableSince while passes are not permitted. The call makes no
// request.
const stabilityPollInterval = 10 * time.Second

// Reachability provides information about outages of the clusters.
type Reachability interface {
	// StopReason returns a reason and message if no instance may be removed now. If instances may be removed, the
	// reason is empty.
	StopReason() (reason, message string)
	// StableSince returns the time at which this process had become the leader and had reached all clusters. stable is
	// false if the process is not the leader, or if a cluster cannot be reached.
	StableSince() (since time.Time, stable bool)
}

// Options are the dependencies and settings of a Collector.
type Options struct {
	Rules Rules
	// Cloud is the driver, wrapped by the fence, the rate limit and the metrics.
	Cloud provider.Driver
	// Client reads MachineClasses and Machines from the cache. The cache may lack this process's own writes.
	Client client.Reader
	// LiveClient reads Machines and Secrets from the API server of the control cluster, and writes the status of
	// classes.
	LiveClient client.Client
	// Target is the target cluster, or nil if there is none.
	Target *Target
	// Mismatch returns an error if the cluster ID differs from the cluster ID that is recorded for this installation.
	// Nothing is listed then.
	Mismatch func() error
	// Record is the object with the recorded cluster ID, for events.
	Record       *corev1.ConfigMap
	Reachability Reachability
	// CheckInstance makes the controller of a Machine check whether the instance still exists.
	CheckInstance func(*v1beta1.Machine)
	Recorder      events.EventRecorder
	Clock         clock.PassiveClock
	// Ledger stores the result of the last pass for users. It may be nil.
	Ledger Ledger
	// Metrics may be nil.
	Metrics *Metrics
}

// Collector removes the orphans of one provider.
type Collector struct {
	Options
	state    state
	pageSize int64
}

// New returns a Collector.
func New(o Options) *Collector {
	return &Collector{Options: o, pageSize: machinesPerPage}
}

// Reconcile runs a pass if one is due. Whatever the trigger, passes start at least one period apart, and a failed pass
// is not repeated earlier. Paying for orphans for another half hour is better than more requests to a cloud with
// problems.
func (c *Collector) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	now := c.Clock.Now()
	if wait := c.state.began.Add(c.Rules.Period).Sub(now); !c.state.began.IsZero() && wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err := c.Mismatch(); err != nil {
		c.state.observations = nil
		c.reportMismatch(ctx, err)
		c.record(ctx, now, ledger.Page{Stopped: err.Error()})
		return reconcile.Result{RequeueAfter: c.Rules.Period}, nil
	}
	if !c.stable() {
		return reconcile.Result{RequeueAfter: min(stabilityPollInterval, c.Rules.Period)}, nil
	}
	c.state.began = now
	before := c.state.observations
	// After an interrupted pass, the next pass must start without observations. So the old observations are dropped
	// before the pass.
	c.state.observations = nil
	plan := c.pass(ctx, now, before)
	c.state.observations, c.state.instances = plan.Observations, plan.Instances
	return reconcile.Result{RequeueAfter: max(now.Add(c.Rules.Period).Sub(c.Clock.Now()), time.Millisecond)}, nil
}

func (c *Collector) stable() bool {
	_, stable := c.Reachability.StableSince()
	reason, _ := c.Reachability.StopReason()
	return stable && reason == ""
}

func (c *Collector) reportMismatch(ctx context.Context, err error) {
	if c.state.mismatch == err.Error() {
		return
	}
	c.state.mismatch = err.Error()
	c.log(ctx).Error(err, "Not collecting orphans: the cluster ID is not the recorded one")
	c.Recorder.Eventf(c.Record, nil, corev1.EventTypeWarning, reasonMismatch, actionCollect,
		"No orphans are collected: %s", err)
}

func (c *Collector) log(ctx context.Context) logr.Logger { return logf.FromContext(ctx) }

// state is what a Collector remembers between passes. Without this memory, a new process needs one more pass before
// it removes orphans.
type state struct {
	began time.Time
	// observations is Plan.Observations of the last pass, and instances is Plan.Instances: the number of instances in
	// each namespace.
	observations Observations
	instances    map[string]int
	// unseenMachines holds the force-deleted Machines for which the last pass found nothing in the cloud.
	unseenMachines map[types.UID]bool
	// lostNodes holds the Nodes without a Machine and an instance in the last pass.
	lostNodes map[types.UID]bool
	mismatch  string
	// listErrors holds the error of each list that failed in the last pass, by the name of its source.
	listErrors map[string]string
}

// Wiring returns the controller of the Collector. The only key of the controller is enqueued at the start, and each
// Reconcile requeues it.
func (c *Collector) Wiring() wiring.Controller {
	start := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: "orphans"}})
		return nil
	})
	return wiring.Controller{Name: "orphans", Reconciler: c, Concurrency: 1, Sources: []source.Source{start}}
}
