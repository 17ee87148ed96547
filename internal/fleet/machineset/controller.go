package machineset

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/platform/freshness"
	"machinist.dev/machinist/internal/platform/tracing"
	"machinist.dev/machinist/internal/platform/wiring"
)

const (
	defaultConcurrency = 10

	// parallelWrites bounds the requests that one set has under way at a time.
	parallelWrites = 64

	// confirmedBatch is how many machines a set creates at once when its last creations succeeded.
	confirmedBatch = 16

	// maxBatch is how many machines a set creates or deletes until it counts again.
	maxBatch = 500

	// cacheLag, plus cacheLagPerMachine for each machine of a set, is how long the set waits for its cache before it lists
	// machines live: an event of any machine updates the cache, and a LIST costs as much as writing several machines.
	cacheLag           = 50 * time.Millisecond
	cacheLagPerMachine = 100 * time.Microsecond

	// maxRounds bounds one pass. More is left to the next one, so that other sets have their turn.
	maxRounds = 64
)

// Options are the dependencies and settings of a Reconciler.
type Options struct {
	// Client reads the control cluster from the cache, including this process's own writes, and writes to it.
	Client client.Client
	// Live reads the control cluster itself.
	Live client.Reader
	// Recorder records events on MachineSets.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Concurrency is the number of sets worked on at once. Default 10.
	Concurrency int

	// MachineCacheVersion returns the resource version up to which Client's cache of Machines is complete, "" if that is
	// not known: then the reconciler counts from live reads only. Register sets it from the manager's cache if it is nil.
	MachineCacheVersion func() string
	// Stopped returns why this process must not create or remediate now; an empty reason means that it may. Default: it
	// always may.
	Stopped func() Reason
	// Run calls f for each of 0 to n-1 and returns when all have returned. Default: in parallel.
	Run func(n int, f func(i int))
	// NewName returns a name for a new Machine of a set, never the same twice. Default: the set's name with 5 random
	// characters.
	NewName func(set string) string
	// Remediated is called for each machine that was deleted in order to replace it, for a metric. The reason is the
	// machine's failure or the policy that found it unhealthy. Default: not called.
	Remediated func(reason string)
	// Metrics may be nil.
	Metrics *Metrics
	// Ledger is asked before machines are disrupted; nil allows all.
	Ledger *disruption.Ledger
	// Decided are the generations of sets that the same process wrote by what is in Client's cache; may be nil.
	Decided *freshness.Decisions
	// Tracer reports traces; nil where they are off.
	Tracer *tracing.Tracer
}

// Reconciler keeps the number of machines of MachineSets.
type Reconciler struct {
	Options
	shared    *sharedState
	ownWrites *wiring.OwnWrites
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	if o.Concurrency <= 0 {
		o.Concurrency = defaultConcurrency
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Run == nil {
		o.Run = func(n int, f func(int)) { workqueue.ParallelizeUntil(context.Background(), parallelWrites, n, f) }
	}
	if o.NewName == nil {
		o.NewName = func(set string) string { return set + "-" + rand.String(5) }
	}
	return &Reconciler{Options: o, shared: newSharedState(), ownWrites: &wiring.OwnWrites{}}
}

// Reconcile makes one pass over a set.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.Metrics.lead()
	p := &pass{Reconciler: r, key: req.NamespacedName, began: r.Clock.Now(), notAdoptable: map[types.UID]bool{}}
	err := p.run(ctx)
	if p.known != nil {
		p.recordActions()
	}
	switch {
	case errors.Is(err, errGone):
		r.Decided.Forget(r.shared.forget(req.NamespacedName))
		r.Ledger.Waits(asker(req.NamespacedName), nil)
		return reconcile.Result{}, nil
	case errors.Is(err, errReplicasStored):
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: p.requeueAfter}, nil
}

// pass is one reconciliation of one set.
type pass struct {
	*Reconciler
	key   types.NamespacedName
	began time.Time

	known      *setState
	state      State
	deployment *v1beta1.MachineDeployment
	// live is how many of the machines are not being deleted.
	live int
	// trusted says that the machines may be counted, asNewAsSpec that they are at least as new as the set's spec.
	trusted, asNewAsSpec bool

	// batch is how many machines the next round may create; 0 before the first.
	batch int
	// notAdoptable are machines that look like orphans in the cache, but not in a live read.
	notAdoptable map[types.UID]bool
	// failure is why a machine could not be created or deleted.
	failure Reason
	// deletionBlocked says that the deployment still needs machines that the plan would have deleted.
	deletionBlocked bool
	// late says that the cache has machines, or reasons to replace machines, that the API server no longer has.
	late bool
	done actions
	// requeueAfter is when to reconcile again without an event; zero is never.
	requeueAfter time.Duration
}

func (p *pass) run(ctx context.Context) error {
	for range maxRounds {
		plan, err := p.decide(ctx)
		if err != nil {
			return err
		}
		if plan.Settled() {
			p.requeueIn(plan.Wait)
			return p.report(ctx, plan)
		}
		if p.Clock.Since(p.began) >= statusInterval {
			if err := p.report(ctx, plan); err != nil {
				return err
			}
		}
		again, err := p.apply(ctx, plan)
		if err != nil || !again {
			p.requeueIn(plan.Wait)
			return firstOf(err, p.reportAfter(ctx))
		}
	}
	p.requeueIn(time.Millisecond)
	return p.reportAfter(ctx)
}

// decide returns the plan for what is observed now.
func (p *pass) decide(ctx context.Context) (Plan, error) {
	if err := p.observe(ctx); err != nil {
		return Plan{}, err
	}
	if err := p.count(ctx); err != nil {
		return Plan{}, err
	}
	plan := Decide(p.state)
	if live, atLeast := p.needsLive(plan); live && atLeast != "" && p.known.awaited != atLeast {
		p.known.awaited = atLeast
		plan = plan.withoutCounting(cacheLag + time.Duration(len(p.state.Machines))*cacheLagPerMachine)
	} else if live {
		if err := p.observeLive(ctx, atLeast); err != nil {
			return Plan{}, err
		}
		if err := p.count(ctx); err != nil {
			return Plan{}, err
		}
		plan = Decide(p.state)
	}
	p.Ledger.Waits(asker(p.key), plan.Denied, plan.planned...)
	var wait time.Duration
	plan.Update, wait = p.known.dueUpdates(plan.Update, p.state.Now)
	p.requeueIn(wait)
	return plan, nil
}

// count counts the machines, and reads the limits that the set shares with the other sets of its deployment.
func (p *pass) count(ctx context.Context) error {
	p.state.Plain, p.state.Others = p.known.plain.sort(p.state.Set, p.state.Machines, p.state.Now)
	p.live = len(p.state.Plain) + countLive(p.state.Others)
	if err := p.countInFlight(ctx); err != nil {
		return err
	}
	if err := p.readCapacity(ctx); err != nil {
		return err
	}
	if err := p.readDisruption(ctx); err != nil {
		return err
	}
	return p.readAvailability(ctx)
}

// needsLive reports whether the plan must be made again from a live LIST, and the resource version that the LIST must
// have reached: "" asks for the newest.
func (p *pass) needsLive(plan Plan) (live bool, atLeast string) {
	switch {
	case plan.DependsOnCount() && !p.trusted:
		return true, ""
	case plan.Chosen && !p.asNewAsSpec:
		return true, p.known.specVersion
	case plan.Create > 0 && !p.asNewAsSpec && p.exchanges():
		// The deployment raises replicas for machines that were handed over. Unless the set has seen such a machine, it
		// would create another one.
		return true, p.known.specVersion
	}
	return false, ""
}

// exchanges reports whether the set may just have received machines from other sets of its deployment.
func (p *pass) exchanges() bool {
	return handover.Receives(p.state.Set) || p.deployment != nil &&
		p.deployment.Spec.Strategy.TypeOrDefault() == v1beta1.StrategyInPlace
}

// requeueIn asks for another pass after d at the latest; zero is never.
func (p *pass) requeueIn(d time.Duration) {
	if d > 0 && (p.requeueAfter == 0 || d < p.requeueAfter) {
		p.requeueAfter = d
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
