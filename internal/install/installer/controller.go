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

// Options are what a Reconciler works with.
type Options struct {
	// Client reads Providers from the cache, including this process's own writes, and writes them. Required.
	Client client.Client
	// Live reads and writes everything else at the API server itself. Required.
	Live client.Client
	// Render renders the chart of a provider process. Required.
	Render Render
	// Namespace is where the processes are installed, and where the Secrets are that Providers name. Required.
	Namespace string
	// Recorder records events on Providers. Required.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Metrics counts Providers; nil counts nothing.
	Metrics *Metrics
}

// Reconciler installs the processes of Providers.
type Reconciler struct{ Options }

// New returns a Reconciler.
func New(o Options) *Reconciler { return &Reconciler{o} }

// How soon to check again what no event reports.
const (
	// leaderDelay is for the holder of a lease: a watch of leases would bring each renewal.
	leaderDelay = 3 * time.Second
	// useDelay is for Machines of a Provider that is being deleted.
	useDelay = 10 * time.Second
	// secretDelay is for a Secret that is missing.
	secretDelay = 15 * time.Second
	// othersDelay is for objects of others, which are not watched.
	othersDelay = 15 * time.Second
	// nodesDelay is for Nodes, of which none has a provider ID yet, or which are of several platforms.
	nodesDelay = 30 * time.Second
)

// Reconcile makes one pass over a Provider.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.Metrics.lead()
	provider := &v1beta1.Provider{}
	if err := r.Client.Get(ctx, req.NamespacedName, provider); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	provider = provider.DeepCopy()
	var after time.Duration
	var err error
	if provider.DeletionTimestamp.IsZero() {
		after, err = r.serve(ctx, provider)
	} else {
		after, err = r.release(ctx, provider)
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: queueing.ConflictDelay}, nil
	}
	return reconcile.Result{RequeueAfter: after}, client.IgnoreNotFound(err)
}

// serve protects a Provider and keeps its process as declared.
func (r *Reconciler) serve(ctx context.Context, provider *v1beta1.Provider) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(provider, v1beta1.InUseFinalizer) {
		before := provider.DeepCopy()
		controllerutil.AddFinalizer(provider, v1beta1.InUseFinalizer)
		if err := r.Client.Patch(ctx, provider,
			client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return 0, fmt.Errorf("protect the Provider: %w", err)
		}
	}
	return r.install(ctx, provider, nil)
}

// install makes the objects of a Provider as its spec asks for, and reports. The condition that is given, if any, is
// reported beside the others. It returns when to check again, zero for not without an event.
func (r *Reconciler) install(ctx context.Context, provider *v1beta1.Provider,
	more *metav1.Condition) (time.Duration, error) {
	status := provider.Status.DeepCopy()
	trouble, err := r.bring(ctx, provider, status)
	switch {
	case err == nil || trouble != nil:
	case apierrors.IsConflict(err):
		return 0, err
	default:
		trouble = applyFailed(err) // A right is missing, perhaps: people must see it.
	}
	observed, observeErr := r.observe(ctx, provider, status)
	if observeErr != nil {
		return 0, observeErr
	}
	status.ObservedGeneration = provider.Generation
	status.Version = observed.version()
	conditions, after := conditionsOf(provider, status, trouble, observed)
	if more != nil {
		conditions = append(conditions, *more)
		after = soonest(after, useDelay)
	}
	for i := range conditions {
		conditions[i].LastTransitionTime = metav1.NewTime(r.Clock.Now())
		meta.SetStatusCondition(&status.Conditions, conditions[i])
	}
	if writeErr := r.write(ctx, provider, status); writeErr != nil {
		return 0, writeErr
	}
	return after, err
}

// bring applies what the spec asks for, and records in status what it comes to. It returns what is in the way, if
// anything; an error has the pass repeated.
func (r *Reconciler) bring(ctx context.Context, provider *v1beta1.Provider, status *v1beta1.ProviderStatus) (*trouble,
	error) {
	if t, err := r.resolveType(ctx, provider, status); t != nil || err != nil {
		return t, err
	}
	if t, err := r.missingSecret(ctx, provider); t != nil || err != nil {
		return t, err
	}
	desired, err := r.render(provider, status.Type)
	if err != nil {
		return &trouble{reason: v1beta1.ReasonInvalidValues, message: wording.Brief(err.Error())}, nil
	}
	status.Process = processName(status.Type)
	status.DesiredVersion = desiredVersion(desired)
	present, err := r.present(ctx, desired, status.Installed)
	if err != nil {
		return nil, err
	}
	steps := planOf(desired, present, status.Installed, provider.UID)
	if len(steps.Conflicts) > 0 {
		return &trouble{reason: v1beta1.ReasonObjectConflict, message: wording.Brief(steps.conflictMessage()),
			after: othersDelay}, nil
	}
	if recorded := steps.recorded(status.Installed); !slices.Equal(recorded, status.Installed) {
		status.Installed = recorded
		if err := r.write(ctx, provider, status); err != nil {
			return nil, err
		}
	}
	if err := r.carryOut(ctx, steps); err != nil {
		return nil, err
	}
	status.Installed = steps.installed()
	return nil, nil
}

// write writes the status if it is a change, and an event if the Provider became degraded or recovered.
func (r *Reconciler) write(ctx context.Context, provider *v1beta1.Provider, status *v1beta1.ProviderStatus) error {
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
