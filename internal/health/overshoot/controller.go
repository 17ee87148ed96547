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
	// perMachine for each machine of a family passes between two checks it, up to the period: a check goes through them
	// all, and the cost of a fleet that comes up or goes would grow with its square.
	perMachine = time.Millisecond
)

// Options are what a Reconciler works with.
type Options struct {
	// Client reads the control cluster from the cache, and writes to it.
	Client client.Client
	// Live reads the control cluster itself.
	Live client.Reader
	// Recorder records events on MachineDeployments and MachineSets.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Limits say what is too much; they are valid.
	Limits Limits
	// Frozen is reported how many families are frozen; may be nil.
	Frozen *prometheus.GaugeVec
}

// Reconciler freezes families with too many machines, and thaws them.
type Reconciler struct {
	Options
	state *state
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Reconciler{Options: o, state: newState(o.Frozen)}
}

// Reconcile checks one family.
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
	known := r.state.of(key, f.root().GetUID())
	asked := f.unfreeze()
	if wait := known.checkAfter.Sub(now); wait > 0 && !asked {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err := f.countCached(ctx, r.Client); err != nil {
		return reconcile.Result{}, err
	}
	known.meet(f.sets)
	known.checkAfter = now.Add(queueing.Spacing{PerObject: perMachine, Max: r.Limits.Period}.For(f.looked))
	wait, err := r.judge(ctx, f, known, now)
	r.state.note(known)
	switch {
	case err != nil && onlyConflict(err):
		known.checkAfter = time.Time{}
		return reconcile.Result{RequeueAfter: queueing.ConflictDelay}, nil
	case err != nil:
		known.checkAfter = time.Time{} // What was begun must be done.
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// judge decides about a family and does what follows. It returns after what time to check again.
func (r *Reconciler) judge(ctx context.Context, f *family, known *familyState, now time.Time) (time.Duration, error) {
	known.frozen = f.frozen()
	observation, clear := r.observation(f, now)
	switch {
	case clear:
		known.history = known.history.Learn(observation, r.Limits)
	case !observation.Unfreeze:
		return 0, nil
	}
	decision := Decide(known.history, observation, r.Limits)
	resting := known.history.Resting(now)
	switch {
	case decision.Step == Thaw:
		wrote, err := r.thaw(ctx, f)
		r.stepped(known, f, now, wrote, err)
		return r.Limits.Period, err
	case decision.Step == Freeze && freezable(f), known.cutOff:
		return r.stepLive(ctx, f, known, observation)
	case resting:
		// What was written then may not be in the cache yet.
		return known.history.restUntil.Sub(now), nil
	case observation.Frozen:
		_, err := r.freeze(ctx, f, observation.Live, decision.High)
		return decision.Wait, err
	case f.marked():
		_, err := r.thaw(ctx, f)
		return decision.Wait, err
	}
	return decision.Wait, nil
}

// stepped notes that a step was taken, or found to be unfounded. One that failed before it wrote anything is none.
func (r *Reconciler) stepped(known *familyState, f *family, now time.Time, wrote bool, err error) {
	known.cutOff = err != nil && (wrote || known.cutOff)
	if err != nil && !wrote {
		return
	}
	known.frozen = f.frozen()
	known.history = known.history.Rested(now, r.Limits)
}

func (r *Reconciler) observation(f *family, now time.Time) (Observation, bool) {
	wanted, known := f.wanted()
	return Observation{Now: now, Wanted: wanted, Recorded: f.recorded(), Live: f.count(), Frozen: f.frozen(),
		Unfreeze: f.unfreeze()}, known
}

// stepLive freezes a family that has too many machines, if the API server reports it too, and completes a step that
// was cut off.
func (r *Reconciler) stepLive(ctx context.Context, cached *family, known *familyState,
	seen Observation) (time.Duration, error) {
	f, err := find(ctx, r.Live, known.key, false)
	if err != nil {
		return 0, err
	}
	if f == nil || f.root().GetUID() != cached.root().GetUID() {
		return 0, nil // The cache will hear of it.
	}
	if err := f.countLive(ctx, r.Live); err != nil {
		return 0, err
	}
	observation, clear := r.observation(f, seen.Now)
	if !clear {
		return 0, nil
	}
	known.history = known.history.Learn(observation, r.Limits)
	var wrote bool
	switch decision := Decide(known.history, observation, r.Limits); {
	// One that is frozen already was left half done.
	case decision.Step == Freeze || observation.Frozen && decision.Step == Keep:
		wrote, err = r.freeze(ctx, f, observation.Live, decision.High)
	case known.cutOff && !observation.Frozen && f.marked():
		wrote, err = r.thaw(ctx, f)
	}
	r.stepped(known, f, seen.Now, wrote, err)
	return r.Limits.Period, err
}

// onlyConflict reports whether an error says only that somebody else wrote first, or took the object away.
func onlyConflict(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }
