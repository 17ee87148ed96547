package overshoot

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/internal/platform/queueing"
)

const (
	// perMachine multiplied by the number of machines is the delay between two checks of a fleet, but at most the
	// period. Each check examines all machines of the fleet. If each new machine caused a check, the cost of scaling up
	// a fleet would grow with the square of its size.
	perMachine = time.Millisecond
)

// Options are the dependencies and settings of a Reconciler.
type Options struct {
	// Client reads the control cluster from the cache, and writes to it.
	Client client.Client
	// LiveReader reads from the API server of the control cluster.
	LiveReader client.Reader
	// Recorder records events on MachineDeployments and MachineSets.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Limits define when a fleet has too many machines. They must be valid.
	Limits Limits
	// FrozenGauge is the metric for the number of frozen fleets. It may be nil.
	FrozenGauge *prometheus.GaugeVec
}

// Reconciler freezes fleets with too many machines and thaws them.
type Reconciler struct {
	Options
	state *state
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Reconciler{Options: o, state: newState(o.FrozenGauge)}
}

// Reconcile checks one fleet.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key, now := request.NamespacedName, r.Clock.Now()
	f, err := find(ctx, r.Client, key, true)
	if err != nil {
		return reconcile.Result{}, err
	}
	if f == nil {
		r.state.forget(key)
		return reconcile.Result{}, nil
	}
	known := r.state.get(key, f.root().GetUID())
	asked := f.unfreeze()
	if wait := known.checkAfter.Sub(now); wait > 0 && !asked {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err := f.countCached(ctx, r.Client); err != nil {
		return reconcile.Result{}, err
	}
	known.noteSets(f.sets)
	known.checkAfter = now.Add(queueing.Spacing{PerObject: perMachine, Max: r.Limits.Period}.Delay(f.examined))
	wait, err := r.decideAndApply(ctx, f, known, now)
	r.state.put(known)
	switch {
	case err != nil && onlyConflict(err):
		known.checkAfter = time.Time{}
		return reconcile.Result{RequeueAfter: queueing.ConflictDelay}, nil
	case err != nil:
		known.checkAfter = time.Time{} // The retry must complete what the step began.
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// decideAndApply decides and takes the next step for a fleet. It returns the time until the next check.
func (r *Reconciler) decideAndApply(ctx context.Context, f *fleet, known *fleetState,
	now time.Time) (time.Duration, error) {
	known.frozen = f.isFrozen()
	observation, wantedValid := r.observation(f, now)
	switch {
	case wantedValid:
		known.history = known.history.Learn(observation, r.Limits)
	case !observation.Unfreeze:
		return 0, nil
	}
	decision := Decide(known.history, observation, r.Limits)
	pausing := known.history.Pausing(now)
	switch {
	case decision.Step == Thaw:
		wrote, err := r.thaw(ctx, f)
		r.recordStep(known, f, now, wrote, err)
		return r.Limits.Period, err
	case decision.Step == Freeze && freezable(f), known.isInterrupted:
		return r.stepLive(ctx, f, known, observation)
	case pausing:
		// The cache may lack the last write.
		return known.history.pauseUntil.Sub(now), nil
	case observation.IsFrozen:
		_, err := r.freeze(ctx, f, observation.LiveMachines, decision.MaxMachines)
		return decision.RequeueAfter, err
	case f.anyFrozenByUs():
		_, err := r.thaw(ctx, f)
		return decision.RequeueAfter, err
	}
	return decision.RequeueAfter, nil
}

// recordStep records that a step was taken or not needed. A step that failed before its first write is not recorded.
func (r *Reconciler) recordStep(known *fleetState, f *fleet, now time.Time, wrote bool, err error) {
	known.isInterrupted = err != nil && (wrote || known.isInterrupted)
	if err != nil && !wrote {
		return
	}
	known.frozen = f.isFrozen()
	known.history = known.history.AfterStep(now, r.Limits)
}

func (r *Reconciler) observation(f *fleet, now time.Time) (Observation, bool) {
	wanted, known := f.wantedMachines()
	return Observation{Now: now, WantedMachines: wanted, RecordedMachines: f.recorded(), LiveMachines: f.count(), IsFrozen: f.isFrozen(),
		Unfreeze: f.unfreeze()}, known
}

// stepLive counts the machines at the API server. If there are too many machines, it freezes the fleet. It also
// completes an interrupted step.
func (r *Reconciler) stepLive(ctx context.Context, cached *fleet, known *fleetState,
	seen Observation) (time.Duration, error) {
	f, err := find(ctx, r.LiveReader, known.key, false)
	if err != nil {
		return 0, err
	}
	if f == nil || f.root().GetUID() != cached.root().GetUID() {
		return 0, nil // The cache is stale. An event follows.
	}
	if err := f.countLive(ctx, r.LiveReader); err != nil {
		return 0, err
	}
	observation, wantedValid := r.observation(f, seen.Now)
	if !wantedValid {
		return 0, nil
	}
	known.history = known.history.Learn(observation, r.Limits)
	var wrote bool
	switch decision := Decide(known.history, observation, r.Limits); {
	// Also call freeze for a frozen fleet, because some of its sets may not be frozen yet.
	case decision.Step == Freeze || observation.IsFrozen && decision.Step == Keep:
		wrote, err = r.freeze(ctx, f, observation.LiveMachines, decision.MaxMachines)
	case known.isInterrupted && !observation.IsFrozen && f.anyFrozenByUs():
		wrote, err = r.thaw(ctx, f)
	}
	r.recordStep(known, f, seen.Now, wrote, err)
	return r.Limits.Period, err
}

func onlyConflict(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }
