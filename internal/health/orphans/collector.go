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

// stableListing is how often a process that may not act looks whether it may. It costs nothing: no request is made.
const stableListing = 10 * time.Second

// Reach tells of outages.
type Reach interface {
	// Stopped says why nothing must be removed now; the reason is empty if it may.
	Stopped() (reason, message string)
	// StableSince returns since when this process leads and all clusters answer, and false if it is not so now.
	StableSince() (since time.Time, stable bool)
}

// Options are what a Collector works with.
type Options struct {
	Rules Rules
	// Cloud is the driver, behind the fence, the rate limit and the metrics.
	Cloud provider.Driver
	// Client reads MachineClasses and Machines from the cache. It need not know this process's own writes.
	Client client.Reader
	// Live reads Machines and Secrets at the control cluster itself, and writes the status of classes.
	Live client.Client
	// Target is the target cluster; nil where there is none.
	Target *Target
	// Mismatch returns an error while the cluster id is not the one recorded for this installation. No instance is
	// listed then.
	Mismatch func() error
	// Record is the object with the recorded cluster id, for events; only its name counts.
	Record *corev1.ConfigMap
	Reach  Reach
	// CheckInstance has a Machine ask the provider whether its instance is still there.
	CheckInstance func(*v1beta1.Machine)
	Recorder      events.EventRecorder
	Clock         clock.PassiveClock
	// Ledger keeps what the last pass found for people; may be nil.
	Ledger Ledger
	// Metrics may be nil.
	Metrics *Metrics
}

// Collector removes the orphans of one provider.
type Collector struct {
	Options
	state state
	// pageSize bounds the pages in which Machines are listed.
	pageSize int64
}

// New returns a Collector.
func New(o Options) *Collector {
	return &Collector{Options: o, pageSize: machinesPerPage}
}

// Reconcile makes a pass, if one is due. Passes do not begin more often than once in a period, whatever triggers
// them, and one that fails is not repeated sooner: that orphans cost money for half an hour more is no reason to
// burden a cloud that is in trouble.
func (c *Collector) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	now := c.Clock.Now()
	if wait := c.state.began.Add(c.Rules.Period).Sub(now); !c.state.began.IsZero() && wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err := c.Mismatch(); err != nil {
		c.state.observations = nil
		c.reportMismatch(ctx, err)
		c.keep(ctx, now, ledger.Page{Stopped: err.Error()})
		return reconcile.Result{RequeueAfter: c.Rules.Period}, nil
	}
	if !c.stable() {
		return reconcile.Result{RequeueAfter: min(stableListing, c.Rules.Period)}, nil
	}
	c.state.began = now
	before := c.state.observations
	// Until the end of the pass nothing was seen: one that is cut off is none.
	c.state.observations = nil
	plan := c.pass(ctx, now, before)
	c.state.observations, c.state.instances = plan.Observations, plan.Instances
	return reconcile.Result{RequeueAfter: max(now.Add(c.Rules.Period).Sub(c.Clock.Now()), time.Millisecond)}, nil
}

func (c *Collector) stable() bool {
	_, stable := c.Reach.StableSince()
	reason, _ := c.Reach.Stopped()
	return stable && reason == ""
}

// reportMismatch says once for each mismatch that nothing is collected.
func (c *Collector) reportMismatch(ctx context.Context, err error) {
	if c.state.mismatch == err.Error() {
		return
	}
	c.state.mismatch = err.Error()
	c.log(ctx).Error(err, "Orphaned instances are left alone")
	c.Recorder.Eventf(c.Record, nil, corev1.EventTypeWarning, reasonMismatch, actionCollect,
		"Orphaned instances are left alone: %s", err)
}

func (c *Collector) log(ctx context.Context) logr.Logger { return logf.FromContext(ctx) }

// state is all that a Collector keeps between passes. Losing it at a restart costs the time of one pass.
type state struct {
	// began is when the last pass did, zero before the first.
	began time.Time
	// observations are those of the last pass, instances its numbers of instances by namespace.
	observations Observations
	instances    map[string]int
	// unseen are the Machines that were deleted by force of which the last pass found nothing.
	unseen map[types.UID]bool
	// lostNodes are the Nodes without a Machine and without an instance that the last pass found.
	lostNodes map[types.UID]bool
	// mismatch is what was made known of another cluster id.
	mismatch string
}

// Wiring returns what triggers the Collector: its start, and from then on itself. Its one key says nothing.
func (c *Collector) Wiring() wiring.Controller {
	start := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: "orphans"}})
		return nil
	})
	return wiring.Controller{Name: "orphans", Reconciler: c, Concurrency: 1, Sources: []source.Source{start}}
}
