package report

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/queueing"
)

const (
	// countInterval is the minimum time between two status writes if only numbers of machines have changed.
	countInterval = 10 * time.Second
	coalesce      = time.Second
	// clockCheck is the longest time between two evaluations of a budget with windows, because the system clock may be
	// changed.
	clockCheck = time.Hour
)

// Options are the dependencies of a Reconciler.
type Options struct {
	// Client reads the control cluster from the cache and writes the status of budgets.
	Client client.Client
	// Recorder records events on budgets. It may be nil.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Metrics may be nil.
	Metrics *Metrics
}

// Reconciler keeps the status of budgets up to date.
type Reconciler struct {
	Options

	mu      sync.Mutex
	written map[types.NamespacedName]time.Time
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Reconciler{Options: o, written: map[types.NamespacedName]time.Time{}}
}

// Reconcile brings the status of one budget up to date.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	r.Metrics.enable()
	budget := &v1beta1.MachineDisruptionBudget{}
	err := r.Client.Get(ctx, request.NamespacedName, budget)
	if apierrors.IsNotFound(err) || err == nil && budget.DeletionTimestamp != nil {
		r.forget(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("get the disruption budget %s: %w", request, err)
	}
	machines, err := index.ListShared[v1beta1.Machine](ctx, r.Client, &v1beta1.MachineList{},
		client.InNamespace(request.Namespace))
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("list the machines of the disruption budget %s: %w", request, err)
	}
	now := r.Clock.Now()
	status, problem := Status(budget, machines, now)
	wait, err := r.write(ctx, budget, status, problem)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: queueing.ConflictDelay}, nil
	}
	return reconcile.Result{RequeueAfter: earliest(wait, untilChange(status, now))}, err
}

// untilChange returns when the status must be computed again without an event. Zero means never.
func untilChange(status *v1beta1.MachineDisruptionBudgetStatus, now time.Time) time.Duration {
	if status.NextChange == nil {
		return 0
	}
	// Zero would mean never.
	return min(max(status.NextChange.Sub(now), time.Millisecond), clockCheck)
}

func earliest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func (r *Reconciler) mayWriteIn(budget types.NamespacedName) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.written[budget]
	if !known {
		return 0
	}
	// The clock may have been set back.
	return min(max(0, last.Add(countInterval).Sub(r.Clock.Now())), countInterval)
}

func (r *Reconciler) wrote(budget types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written[budget] = r.Clock.Now()
}

func (r *Reconciler) forget(budget types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.written, budget)
}
