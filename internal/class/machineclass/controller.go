package machineclass

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/class/preflight"
	"machinist.dev/machinist/internal/platform/queueing"
	"machinist.dev/machinist/internal/platform/wiring"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/pkg/provider"
)

// Options configures a Reconciler.
type Options struct {
	// Driver is the driver of the provider, wrapped by the rate limit and the metrics. Classes with another
	// spec.provider are ignored.
	Driver provider.Driver
	// Client writes MachineClasses, and reads MachineClasses and Machines from a cache with the indexes of package
	// index. Each read includes the writes of this process.
	Client client.Client
	// LiveClient reads and writes the control cluster without a cache, for Secrets and for the last check before a
	// finalizer is removed.
	LiveClient client.Client
	// Recorder records events on classes.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Concurrency is how many classes are reconciled at a time. Defaults to 4.
	Concurrency int
	// Metrics may be nil.
	Metrics *Metrics
	// JoinMonitor is the monitor that finds what prevents machines from joining. Nil means that there is no target
	// cluster. The function New sets JoinMonitor.OnChange.
	JoinMonitor *preflight.Monitor
}

// Reconciler reconciles the MachineClasses of one provider.
type Reconciler struct {
	Options
	resolver resolve.Resolver
	state    *state
	writes   *wiring.OwnWrites
	trigger  queueing.Trigger
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	if o.Concurrency <= 0 {
		o.Concurrency = 4
	}
	r := &Reconciler{Options: o, resolver: resolve.Resolver{Classes: o.Client, Secrets: o.LiveClient}, state: newState(),
		writes: &wiring.OwnWrites{}}
	if o.JoinMonitor != nil {
		o.JoinMonitor.OnChange = r.joinsChanged
	}
	return r
}

func (r *Reconciler) joinsChanged(ctx context.Context) {
	classes := &v1beta1.MachineClassList{}
	if err := r.Client.List(ctx, classes); err != nil {
		logf.FromContext(ctx).Error(err, "Failed to list the classes whose machines may be unable to join")
	}
	for i := range classes.Items {
		if classes.Items[i].Spec.Provider == r.Driver.Name() {
			r.trigger.Enqueue(client.ObjectKeyFromObject(&classes.Items[i]))
		}
	}
}

// Reconcile runs one pass over a class.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.Metrics.enable()
	class := &v1beta1.MachineClass{}
	if err := r.Client.Get(ctx, req.NamespacedName, class); err != nil {
		if apierrors.IsNotFound(err) {
			r.state.forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if class.Spec.Provider != r.Driver.Name() {
		return reconcile.Result{}, nil
	}
	var enqueue time.Duration
	var err error
	if class.DeletionTimestamp.IsZero() {
		enqueue, err = r.serve(ctx, class)
	} else {
		enqueue, err = r.release(ctx, class)
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: queueing.ConflictDelay}, nil
	}
	return reconcile.Result{RequeueAfter: enqueue}, client.IgnoreNotFound(err)
}

// serve protects a class that is in use and validates it. It returns the time until the next check, or zero if only an
// event triggers it.
func (r *Reconciler) serve(ctx context.Context, class *v1beta1.MachineClass) (time.Duration, error) {
	if err := r.hold(ctx, class); err != nil {
		return 0, err
	}
	validation, enqueue, err := r.validate(ctx, class)
	if err != nil {
		return 0, err
	}
	validation.joins = r.JoinMonitor.Findings()
	if validation.userData != nil {
		machines, err := r.machines(ctx, class)
		if err != nil {
			return 0, err
		}
		for i := range machines {
			validation.userData.count(&machines[i])
			validation.account.count(&machines[i])
		}
	}
	return shorterWait(enqueue, configMapsAfter(class)), r.report(ctx, class, validation)
}

// configMapsEvery is how often the ConfigMaps of a class are read. ConfigMaps are not watched, because the provider
// may be permitted to read only single ConfigMaps.
const configMapsEvery = 5 * time.Minute

func configMapsAfter(class *v1beta1.MachineClass) time.Duration {
	if slices.ContainsFunc(class.Spec.Values, func(v v1beta1.UserDataValue) bool {
		return v.ValueFrom != nil && v.ValueFrom.ConfigMapKeyRef != nil
	}) {
		return configMapsEvery
	}
	return 0
}

// shorterWait returns the shorter of two durations. Zero means no wait.
func shorterWait(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func (r *Reconciler) report(ctx context.Context, class *v1beta1.MachineClass, v validation) error {
	status, transition := statusOf(class, v, r.Clock.Now())
	before := class.Status.DeepCopy()
	if err := r.writeStatus(ctx, class, status); err != nil {
		return err
	}
	for kind, severity := range map[string]string{v1beta1.ConditionUserDataWarning: corev1.EventTypeWarning,
		v1beta1.ConditionUserDataChanged: corev1.EventTypeNormal,
		v1beta1.ConditionAccountChanged:  corev1.EventTypeWarning,
		v1beta1.ConditionJoinBlocked:     corev1.EventTypeWarning} {
		now, was := meta.FindStatusCondition(status.Conditions, kind), meta.FindStatusCondition(before.Conditions, kind)
		if now != nil && (was == nil || was.Reason != now.Reason) {
			r.Recorder.Eventf(class, nil, severity, now.Reason, "Validate", "%s", now.Message)
		}
	}
	switch transition {
	case worse:
		r.Recorder.Eventf(class, nil, corev1.EventTypeWarning, v.reason, "Validate", "%s", wording.Shorten(v.message))
	case better:
		r.Recorder.Eventf(class, nil, corev1.EventTypeNormal, v.reason, "Validate", "%s", wording.Shorten(v.message))
	}
	return nil
}

func (r *Reconciler) writeStatus(ctx context.Context, class *v1beta1.MachineClass,
	status v1beta1.MachineClassStatus) error {
	if equality.Semantic.DeepEqual(class.Status, status) {
		return nil
	}
	before := class.DeepCopy()
	class.Status = status
	if err := r.Client.Status().Patch(ctx, class,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patch the status of MachineClass %s: %w", client.ObjectKeyFromObject(before), err)
	}
	r.writes.Record(class)
	return nil
}
