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

	parallelWrites = 64

	// confirmedBatch is the number of machines that a pass creates in its first round, provided that the latest
	// creations of the set succeeded.
	confirmedBatch = 16

	maxBatch = 500

	// cacheLag is the first part of the time for which a set waits for its cache before it lists machines live. The
	// second part is cacheLagPerMachine for each machine. Waiting is cheaper than the LIST, which costs as much as
	// several writes.
	cacheLag           = 50 * time.Millisecond
	cacheLagPerMachine = 100 * time.Microsecond

	// maxRounds is the maximum number of rounds in a pass. Another pass continues after other sets have had their turn.
	maxRounds = 64
)

// Options are the dependencies and settings of a Reconciler.
type Options struct {
	// Client reads the control cluster from the cache, including this process's own writes, and writes to it.
	Client client.Client
	// LiveReader reads from the API server of the control cluster, without a cache.
	LiveReader client.Reader
	// Recorder records events on MachineSets.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Concurrency is the maximum number of sets that are reconciled in parallel. Defaults to 10.
	Concurrency int

	// MachineCacheVersion returns the resource version up to which Client's cache of Machines is complete, or "" if
	// unknown. With an unknown version, the reconciler counts machines only in live reads. If the field is nil,
	// Register sets it to a function that reads the version of the manager's cache.
	MachineCacheVersion func() string
	// StopReason returns the reason why this process must not create or remediate machines. If the reason is empty or
	// the field is nil, the process may create and remediate machines.
	StopReason func() ConditionReason
	// ForEach calls f with each number from 0 to n-1 and waits for all calls. Defaults to parallel calls.
	ForEach func(n int, f func(i int))
	// NewName returns a name for a new Machine and never repeats one. Defaults to the set's name and 5 random
	// characters.
	NewName func(set string) string
	// Remediated is called for each machine that was deleted in order to be replaced. The reason is the machine's
	// failure or the policy that found it unhealthy. The field may be nil.
	Remediated func(reason string)
	// Metrics may be nil.
	Metrics *Metrics
	// Ledger decides which machines may be disrupted. A nil Ledger allows all.
	Ledger *disruption.Ledger
	// Decisions records the generations of sets that this process wrote on the basis of its cache. The field may be
	// nil.
	Decisions *freshness.Decisions
	// Tracer reports traces. It is nil if traces are off.
	Tracer *tracing.Tracer
}

// Reconciler keeps the number of machines of each MachineSet at spec.replicas.
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
	if o.ForEach == nil {
		o.ForEach = func(n int, f func(int)) { workqueue.ParallelizeUntil(context.Background(), parallelWrites, n, f) }
	}
	if o.NewName == nil {
		o.NewName = func(set string) string { return set + "-" + rand.String(5) }
	}
	return &Reconciler{Options: o, shared: newSharedState(), ownWrites: &wiring.OwnWrites{}}
}

// Reconcile runs one pass over a set.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.Metrics.enable()
	p := &pass{Reconciler: r, key: req.NamespacedName, began: r.Clock.Now(), notAdoptable: map[types.UID]bool{}}
	err := p.run(ctx)
	if p.known != nil {
		p.recordActions()
	}
	switch {
	case errors.Is(err, errGone):
		r.Decisions.Forget(r.shared.forget(req.NamespacedName))
		r.Ledger.RecordWaiting(asker(req.NamespacedName), nil)
		return reconcile.Result{}, nil
	case errors.Is(err, errReplicasStored):
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: p.requeueAfter}, nil
}

type pass struct {
	*Reconciler
	key   types.NamespacedName
	began time.Time

	known      *setState
	state      State
	deployment *v1beta1.MachineDeployment
	live       int
	// trusted means that the count of machines is certain. asNewAsSpec means that the machines are at least as new as
	// the set's spec.
	trusted, asNewAsSpec bool

	batch int
	// notAdoptable holds orphans in the cache that a live read has ruled out.
	notAdoptable    map[types.UID]bool
	failure         ConditionReason
	deletionBlocked bool
	// cacheStale means that the cache shows machines or failures that no longer exist.
	cacheStale bool
	done       actions
	// requeueAfter is the time until the next pass without an event. Zero means never.
	requeueAfter time.Duration
}

func (p *pass) run(ctx context.Context) error {
	for range maxRounds {
		plan, err := p.decide(ctx)
		if err != nil {
			return err
		}
		if plan.IsEmpty() {
			p.requeueIn(plan.RequeueAfter)
			return p.report(ctx, plan)
		}
		if p.Clock.Since(p.began) >= statusInterval {
			if err := p.report(ctx, plan); err != nil {
				return err
			}
		}
		again, err := p.apply(ctx, plan)
		if err != nil || !again {
			p.requeueIn(plan.RequeueAfter)
			return firstError(err, p.reportAfter(ctx))
		}
	}
	p.requeueIn(time.Millisecond)
	return p.reportAfter(ctx)
}

func (p *pass) decide(ctx context.Context) (Plan, error) {
	if err := p.observe(ctx); err != nil {
		return Plan{}, err
	}
	if err := p.count(ctx); err != nil {
		return Plan{}, err
	}
	plan := Decide(p.state)
	if live, atLeast := p.needsLive(plan); live && atLeast != "" && p.known.awaitedVersion != atLeast {
		p.known.awaitedVersion = atLeast
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
	p.Ledger.RecordWaiting(asker(p.key), plan.Denials, plan.plannedDisruptions...)
	var wait time.Duration
	plan.Update, wait = p.known.dueUpdates(plan.Update, p.state.Now)
	p.requeueIn(wait)
	return plan, nil
}

func (p *pass) count(ctx context.Context) error {
	p.state.SteadyMachines, p.state.OtherMachines = p.known.steadyMachines.sort(p.state.Set, p.state.Machines, p.state.Now)
	p.live = len(p.state.SteadyMachines) + countLive(p.state.OtherMachines)
	if err := p.countInFlight(ctx); err != nil {
		return err
	}
	if err := p.readCapacity(ctx); err != nil {
		return err
	}
	if err := p.readDisruption(ctx); err != nil {
		return err
	}
	if err := p.readPlaces(ctx); err != nil {
		return err
	}
	return p.readAvailability(ctx)
}

// needsLive reports whether the plan needs a live LIST. atLeast is the resource version that the LIST must have
// reached, or "" for the newest.
func (p *pass) needsLive(plan Plan) (live bool, atLeast string) {
	switch {
	case plan.DependsOnCount() && !p.trusted:
		return true, ""
	case plan.Chosen && !p.asNewAsSpec:
		return true, p.known.specVersion
	case plan.Create > 0 && !p.asNewAsSpec && p.mayReceiveMachines():
		// The deployment raises replicas by the number of machines that were handed over. If the cache lacks such a
		// machine, the set would create an additional one.
		return true, p.known.specVersion
	}
	return false, ""
}

func (p *pass) mayReceiveMachines() bool {
	return handover.Receives(p.state.Set) || p.deployment != nil &&
		p.deployment.Spec.Strategy.TypeOrDefault() == v1beta1.StrategyInPlace
}

func (p *pass) requeueIn(d time.Duration) {
	if d > 0 && (p.requeueAfter == 0 || d < p.requeueAfter) {
		p.requeueAfter = d
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
