package installer

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/queueing"
	"machinist.dev/machinist/internal/platform/wording"
)

// Options are the dependencies and settings of a Reconciler.
type Options struct {
	// Client writes Providers and reads them from the cache. Each read includes the writes of this process. The field
	// is required.
	Client client.Client
	// LiveClient is a client without a cache, for reads and writes of all other objects. The field is required.
	LiveClient client.Client
	// Render renders the chart of a provider process. The field is required.
	Render Render
	// Namespace contains the processes and the Secrets of Providers. The field is required.
	Namespace string
	// Recorder records events on Providers. The field is required.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Metrics exports the state of Providers. It may be nil.
	Metrics *Metrics
}

// Reconciler installs the processes of Providers.
type Reconciler struct{ Options }

// New returns a Reconciler.
func New(o Options) *Reconciler { return &Reconciler{o} }

// Delays between checks for changes that cause no event.
const (
	// leaderDelay applies to the holder of the Lease. Leases are not watched, because every renewal would cause an
	// event.
	leaderDelay = 3 * time.Second
	// useDelay is the time between two checks whether Machines still use a Provider that is being deleted.
	useDelay = 10 * time.Second
	// secretDelay is the time between two checks of a missing Secret.
	secretDelay = 15 * time.Second
	// othersDelay is the time between two checks of objects that belong to other owners, because the operator does not
	// watch these objects.
	othersDelay = 15 * time.Second
	// nodesDelay is the time between two checks if Nodes lack a provider ID, or belong to several platforms.
	nodesDelay = 30 * time.Second
)

// Reconcile runs one pass over a Provider.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.Metrics.enable()
	provider := &v1beta1.Provider{}
	if err := r.Client.Get(ctx, req.NamespacedName, provider); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	provider = provider.DeepCopy()
	var after time.Duration
	var err error
	if provider.DeletionTimestamp.IsZero() {
		after, err = r.reconcileNormal(ctx, provider)
	} else {
		after, err = r.reconcileDelete(ctx, provider)
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: queueing.ConflictDelay}, nil
	}
	return reconcile.Result{RequeueAfter: after}, client.IgnoreNotFound(err)
}

func (r *Reconciler) reconcileNormal(ctx context.Context, provider *v1beta1.Provider) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(provider, v1beta1.InUseFinalizer) {
		before := provider.DeepCopy()
		controllerutil.AddFinalizer(provider, v1beta1.InUseFinalizer)
		if err := r.Client.Patch(ctx, provider,
			client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return 0, fmt.Errorf("add the finalizer to the Provider: %w", err)
		}
	}
	return r.install(ctx, provider, nil)
}

// install applies the objects of a Provider and writes its status. If additional is not nil, the status also contains
// this condition. The result is the time until the next check, or zero if an event triggers the next pass.
func (r *Reconciler) install(ctx context.Context, provider *v1beta1.Provider,
	additional *metav1.Condition) (time.Duration, error) {
	status := provider.Status.DeepCopy()
	found, err := r.applySpec(ctx, provider, status)
	switch {
	case err == nil || found != nil:
	case apierrors.IsConflict(err):
		return 0, err
	default:
		found = applyFailed(err) // Report the error to the user, because a missing permission may be the cause.
	}
	observed, observeErr := r.observe(ctx, provider, status)
	if observeErr != nil {
		return 0, observeErr
	}
	status.ObservedGeneration = provider.Generation
	status.Version = observed.version()
	conditions, after := conditionsOf(provider, status, found, observed)
	if additional != nil {
		conditions = append(conditions, *additional)
		after = soonest(after, useDelay)
	}
	for i := range conditions {
		conditions[i].LastTransitionTime = metav1.NewTime(r.Clock.Now())
		meta.SetStatusCondition(&status.Conditions, conditions[i])
	}
	if writeErr := r.writeStatus(ctx, provider, status); writeErr != nil {
		return 0, writeErr
	}
	return after, err
}

// applySpec installs the objects of the spec and records the result in status. It returns a problem if the user must
// act, and an error if the pass must be repeated.
func (r *Reconciler) applySpec(ctx context.Context, provider *v1beta1.Provider,
	status *v1beta1.ProviderStatus) (*problem, error) {
	if t, err := r.resolveType(ctx, provider, status); t != nil || err != nil {
		return t, err
	}
	if t, err := r.missingSecret(ctx, provider); t != nil || err != nil {
		return t, err
	}
	desired, err := r.render(provider, status.Type)
	if err != nil {
		return &problem{reason: v1beta1.ReasonInvalidValues, message: wording.Shorten(err.Error())}, nil
	}
	status.Process = processName(status.Type)
	status.DesiredVersion = desiredVersion(desired)
	present, err := r.present(ctx, desired, status.Installed)
	if err != nil {
		return nil, err
	}
	steps := planOf(desired, present, status.Installed, provider.UID)
	if len(steps.Conflicts) > 0 {
		return &problem{reason: v1beta1.ReasonObjectConflict, message: wording.Shorten(steps.conflictMessage()),
			requeueAfter: othersDelay}, nil
	}
	if recorded := steps.recordedObjects(status.Installed); !slices.Equal(recorded, status.Installed) {
		status.Installed = recorded
		if err := r.writeStatus(ctx, provider, status); err != nil {
			return nil, err
		}
	}
	if err := r.carryOut(ctx, steps); err != nil {
		return nil, err
	}
	status.Installed = steps.installedObjects()
	return nil, nil
}

// writeStatus patches the status of a Provider if it has changed. When the Provider becomes degraded or recovers,
// writeStatus records an event.
func (r *Reconciler) writeStatus(ctx context.Context, provider *v1beta1.Provider,
	status *v1beta1.ProviderStatus) error {
	if unchanged(&provider.Status, status) {
		return nil
	}
	before := provider.DeepCopy()
	provider.Status = *status.DeepCopy()
	if err := r.Client.Status().Patch(ctx, provider,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	was := meta.FindStatusCondition(before.Status.Conditions, v1beta1.ConditionDegraded)
	is := meta.FindStatusCondition(provider.Status.Conditions, v1beta1.ConditionDegraded)
	switch {
	case is == nil, was != nil && was.Status == is.Status && was.Reason == is.Reason:
	case is.Status == metav1.ConditionTrue:
		r.Recorder.Eventf(provider, nil, corev1.EventTypeWarning, is.Reason, "Install", "%s", is.Message)
	case was != nil:
		r.Recorder.Eventf(provider, nil, corev1.EventTypeNormal, is.Reason, "Install", "%s", is.Message)
	}
	return nil
}

func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
