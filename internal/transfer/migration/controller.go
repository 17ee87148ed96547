package migration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

// Cloud is the part of the provider that a migration uses.
type Cloud interface {
	provider.Importer
	provider.Finder
	Name() string
	Validate(ctx context.Context, req provider.ValidateRequest) error
	List(ctx context.Context, req provider.ListRequest) (provider.ListPage, error)
	CreateSettle() time.Duration
}

// Timing holds the waiting times for events that the migrator cannot observe.
type Timing struct {
	// Probes is the number of consecutive probes that the policy must refuse, each with a new connection.
	Probes        int
	ProbeInterval time.Duration
	// LeaseMargin is added to the time for which an old controller may act after it has lost its Lease.
	LeaseMargin time.Duration
	// EmptyFor is the time for which no old object must exist before the migrator deletes the old
	// CustomResourceDefinitions.
	EmptyFor     time.Duration
	FormerLeader time.Duration
	// Poll is the time between two passes while a migration waits.
	Poll time.Duration
	// Replan is the interval between plans until the user agrees to a plan.
	Replan time.Duration
}

// DefaultTiming is suitable for several API servers behind a load balancer.
var DefaultTiming = Timing{Probes: 10, ProbeInterval: 3 * time.Second, LeaseMargin: 30 * time.Second,
	EmptyFor: 30 * time.Second, FormerLeader: 30 * time.Second, Poll: 2 * time.Second, Replan: 15 * time.Second}

const (
	nextPassDelay = 10 * time.Millisecond
	recheckDelay  = 250 * time.Millisecond
)

// Options are the dependencies and settings of a Reconciler.
type Options struct {
	// Cloud calls the cloud. It must reject calls after the process has lost its leadership.
	Cloud Cloud
	// ClusterID returns the cluster ID of this installation.
	ClusterID func() string
	// Control and Target are uncached clients of the two clusters. Target is nil if the migration has no target
	// cluster.
	Control, Target client.Client
	// Watch watches the old objects in the control cluster. If it is nil, plans change only after Timing.Replan.
	Watch client.WithWatch
	// NewClient returns a client of the control cluster with its own connection.
	NewClient func() (client.Client, error)
	// SystemNamespace contains the ConfigMaps that are parameters of the policies.
	SystemNamespace string
	// SharedNamespaces contain Secrets and ConfigMaps that old objects in all namespaces may use.
	SharedNamespaces []string
	// User returns the user name of this process in the control cluster.
	User   func(context.Context) (string, error)
	Clock  clock.PassiveClock
	Timing Timing
	// Parallel is the maximum number of concurrent requests. Default: 8.
	Parallel int
	// Metrics exports metrics of the migrations. It may be nil.
	Metrics *Metrics
}

const defaultParallel = 8

// Reconciler moves each Migration from one phase to the next.
type Reconciler struct {
	Options

	mu      sync.Mutex
	fences  map[types.UID]*fence
	waits   map[wait]time.Time
	counts  map[types.UID]progress
	written map[types.NamespacedName]stored

	replan replanner
}

// New returns a Reconciler with defaults for unset options.
func New(o Options) *Reconciler {
	if o.Parallel <= 0 {
		o.Parallel = defaultParallel
	}
	return &Reconciler{Options: o, fences: map[types.UID]*fence{}, waits: map[wait]time.Time{},
		counts: map[types.UID]progress{}, written: map[types.NamespacedName]stored{},
		replan: replanner{changes: make(chan event.GenericEvent), delays: map[types.NamespacedName]time.Duration{}}}
}

func (r *Reconciler) fenceOf(m *v1beta1.Migration) *fence {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, found := r.fences[m.UID]
	if !found {
		f = &fence{disowned: map[types.UID]bool{}}
		r.fences[m.UID] = f
	}
	return f
}

func (r *Reconciler) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.fences, uid)
	r.resetWaits(uid)
}

// Reconcile performs the next step of a Migration.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.Metrics.enable()
	m := &v1beta1.Migration{}
	if err := r.Control.Get(ctx, req.NamespacedName, m); err != nil {
		if apierrors.IsNotFound(err) {
			r.forgetStatus(req.NamespacedName)
			r.stopWatching(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if m.Spec.Provider != r.Cloud.Name() {
		return reconcile.Result{}, nil
	}
	before := m.DeepCopy()
	if r.restoreStatus(ctx, m) && m.Status.Phase.HasEnded() {
		if err := r.Control.Status().Update(ctx, m); err != nil {
			return reconcile.Result{}, fmt.Errorf("restore the status: %w", err)
		}
	}
	if m.Status.Phase.HasEnded() {
		r.rememberStatus(m, &m.Status)
		if err := r.startWorkloadsOnce(ctx, m); err != nil {
			return reconcile.Result{}, err
		}
		return r.removeLateFence(ctx, m)
	}
	p := &pass{Reconciler: r, migration: m, requeueAfter: r.Timing.Poll}
	err := p.run(ctx)
	if apierrors.IsConflict(err) {
		r.rememberStatus(m, nil)
		return reconcile.Result{RequeueAfter: r.Timing.Poll}, nil
	}
	err = p.redactor.inError(err)
	p.report(err)
	m.Status.ObservedGeneration = m.Generation
	changed := !equality.Semantic.DeepEqual(before.Status, m.Status)
	if changed {
		// The update fails if another client has changed the Migration. The next pass reads that change first.
		if err := r.Control.Status().Update(ctx, m); err != nil {
			r.rememberStatus(m, nil) // The update may have been stored without an answer.
			if apierrors.IsConflict(err) {
				return reconcile.Result{RequeueAfter: r.Timing.Poll}, nil
			}
			return reconcile.Result{}, fmt.Errorf("write the status: %w", err)
		}
	}
	r.rememberStatus(m, &m.Status)
	if err != nil {
		return reconcile.Result{}, err
	}
	if before.Status.Phase != m.Status.Phase {
		logf.FromContext(ctx).Info("The migration enters another phase", "from", before.Status.Phase, "to", m.Status.Phase)
		return reconcile.Result{RequeueAfter: nextPassDelay}, nil
	}
	return reconcile.Result{RequeueAfter: p.requeueDelay(changed)}, nil
}

type pass struct {
	*Reconciler
	migration    *v1beta1.Migration
	system       source.System
	requeueAfter time.Duration
	troubles     []string
	troubleCount int
	// waitingFor describes what the fence waits for, or is empty.
	waitingFor string
	// remainingObjects describes why old objects still exist after the end of the migration.
	remainingObjects string
	// objects finds the objects to which old objects refer. It is nil for systems without such objects.
	objects *linkedObjects
	// redactor knows all Secret values that this pass has read.
	redactor redactor
}

const maxTroubles = 20

func (p *pass) addTrouble(format string, args ...any) {
	if p.troubleCount++; len(p.troubles) < maxTroubles {
		p.troubles = append(p.troubles, wording.Shorten(p.redactor.inText(fmt.Sprintf(format, args...))))
	}
}

func (p *pass) run(ctx context.Context) error {
	m := p.migration
	system, found := systemOf(m)
	if !found {
		p.condition(v1beta1.ConditionPlanned, false, v1beta1.ReasonPlanUnknown,
			fmt.Sprintf("spec.source: this version cannot take over fleets of %s.", m.Spec.Source))
		p.requeueAfter = p.Timing.Replan
		return nil
	}
	p.system = p.linked(ctx, system)
	if (m.Spec.Stage == v1beta1.MigrationAbort || !m.DeletionTimestamp.IsZero()) && !m.Status.Phase.Irrevocable() &&
		m.Status.Phase != v1beta1.MigrationAborting {
		return p.enter(v1beta1.MigrationAborting)
	}
	if phase := m.Status.Phase; phase != "" && phase != v1beta1.MigrationPlanning && phase != v1beta1.MigrationAborting {
		if err := p.ensureFinalizer(ctx); err != nil { // Another client may have removed the finalizer.
			return err
		}
	}
	switch m.Status.Phase {
	case "":
		return p.enter(v1beta1.MigrationPlanning)
	case v1beta1.MigrationPlanning:
		return p.runPlanning(ctx)
	case v1beta1.MigrationFencing:
		return p.runFencing(ctx)
	case v1beta1.MigrationSettling:
		return p.runSettling(ctx)
	case v1beta1.MigrationCopying:
		return p.runCopying(ctx)
	case v1beta1.MigrationAdopting:
		return p.runAdopting(ctx)
	case v1beta1.MigrationAdopted:
		return p.runAdopted(ctx)
	case v1beta1.MigrationCommitting:
		return p.runCommitting(ctx)
	case v1beta1.MigrationRemoving:
		return p.runRemoving(ctx)
	case v1beta1.MigrationCleaning:
		return p.runCleaning(ctx)
	case v1beta1.MigrationAborting:
		return p.runAborting(ctx)
	}
	return nil
}

// enter sets the phase in the status. The steps of the new phase run in the next pass, after the status has been
// stored.
func (p *pass) enter(phase v1beta1.MigrationPhase) error {
	p.migration.Status.Phase = phase
	p.stopWatching(client.ObjectKeyFromObject(p.migration))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resetWaits(p.migration.UID)
	return nil
}

func (p *pass) condition(kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&p.migration.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
		Message: wording.Shorten(p.redactor.inText(message)), ObservedGeneration: p.migration.Generation,
		LastTransitionTime: metav1.NewTime(p.Clock.Now())})
}

func (p *pass) report(err error) {
	status := &p.migration.Status
	if err != nil {
		p.addTrouble("%s", withRemedy(err))
	}
	status.Troubles = p.troubles
	switch p.troubleCount {
	case 0:
		p.condition(v1beta1.ConditionStuck, false, v1beta1.ReasonNothingInTheWay, p.waitingFor)
	case 1:
		p.condition(v1beta1.ConditionStuck, true, v1beta1.ReasonTroubles, p.troubles[0])
	default:
		p.condition(v1beta1.ConditionStuck, true, v1beta1.ReasonTroubles,
			fmt.Sprintf("%d troubles; the first is: %s", p.troubleCount, p.troubles[0]))
	}
	switch status.Phase {
	case v1beta1.MigrationAdopted, v1beta1.MigrationCommitting, v1beta1.MigrationRemoving, v1beta1.MigrationCleaning:
		p.condition(v1beta1.ConditionAdopted, true, v1beta1.ReasonMigrated, "")
		p.condition(v1beta1.ConditionCompleted, false, v1beta1.ReasonMigrating, "")
	case v1beta1.MigrationCompleted:
		p.condition(v1beta1.ConditionCompleted, true, v1beta1.ReasonMigrated, p.remainingObjects)
		p.condition(v1beta1.ConditionFenced, false, v1beta1.ReasonFenceTakenDown, "")
	case v1beta1.MigrationAborting, v1beta1.MigrationAborted:
		p.condition(v1beta1.ConditionAdopted, false, v1beta1.ReasonAborted, "")
		p.condition(v1beta1.ConditionCompleted, false, v1beta1.ReasonAborted, "")
		if status.Phase == v1beta1.MigrationAborted {
			p.condition(v1beta1.ConditionFenced, false, v1beta1.ReasonFenceTakenDown, "")
		}
	default:
		p.condition(v1beta1.ConditionAdopted, false, v1beta1.ReasonMigrating, "")
		p.condition(v1beta1.ConditionCompleted, false, v1beta1.ReasonMigrating, "")
	}
}

// waitForFence records what the fence waits for. If that does not change for a long time, the migration is stuck.
func (p *pass) waitForFence(waits string) {
	if waits == "" {
		return
	}
	p.waitingFor = "The migration waits for the fence: " + waits + "."
	if p.unchangedFor(p.migration, waits) >= fenceStallTimeout {
		p.addTrouble("For %d minutes, the migration has waited for the fence: %s", fenceStallTimeout/time.Minute, waits)
	}
}

// examples returns a number of objects and the first of them, such as "3 nodes, for example node a". For one object,
// examples returns only its name, such as "node a".
func examples(n int, noun, first string) string {
	if n == 1 {
		return noun + " " + first
	}
	return fmt.Sprintf("%s, for example %s %s", wording.Count(n, noun), noun, first)
}

// ensureFenced creates the missing parts of the fence, and checks that the fence works. If the fence does not work yet,
// ensureFenced returns false, and the caller must end the pass.
func (p *pass) ensureFenced(ctx context.Context, scope fenceScope) (bool, error) {
	waits, err := p.ensureFence(ctx, p.migration, p.system, scope)
	if err != nil || waits != "" {
		message := waits
		if err != nil {
			message = err.Error()
		}
		p.condition(v1beta1.ConditionFenced, false, v1beta1.ReasonStoppingOldControllers, message)
		p.waitForFence(waits)
		p.requeueAfter = min(p.requeueAfter, p.Timing.ProbeInterval)
		return false, err
	}
	p.condition(v1beta1.ConditionFenced, true, v1beta1.ReasonOldControllersStopped, "")
	return true, nil
}

// ensureFinalizer adds the finalizer, which keeps the record in the status until the migration has ended. An object
// that is being deleted cannot get a finalizer.
func (p *pass) ensureFinalizer(ctx context.Context) error {
	if controllerutil.ContainsFinalizer(p.migration, v1beta1.MigrationFinalizer) ||
		!p.migration.DeletionTimestamp.IsZero() {
		return nil
	}
	status := p.migration.Status
	if err := p.patchFinalizer(ctx, p.migration, controllerutil.AddFinalizer); err != nil {
		return fmt.Errorf("add the finalizer: %w", err)
	}
	p.migration.Status = status
	return nil
}

// patchFinalizer adds or removes the finalizer. An update would also drop empty fields from the spec, and a policy
// rejects such changes.
func (r *Reconciler) patchFinalizer(ctx context.Context, m *v1beta1.Migration,
	change func(client.Object, string) bool) error {
	patch := client.MergeFromWithOptions(m.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if !change(m, v1beta1.MigrationFinalizer) {
		return nil
	}
	return r.Control.Patch(ctx, m, patch)
}

// removeLateFence removes the fence again after the end of the migration. A former leader whose pass is still running
// may have created a part of the fence after the first removal. Such a late part of the fence would block the old
// controllers forever. The last phase of the migration has already waited for former leaders, so a late part can only
// exist if the former leader's host was suspended for longer.
func (r *Reconciler) removeLateFence(ctx context.Context, m *v1beta1.Migration) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(m, v1beta1.MigrationFinalizer) {
		r.forget(m.UID)
		return reconcile.Result{}, nil
	}
	p := &pass{Reconciler: r, migration: m}
	if !p.formerLeaderDone() {
		return reconcile.Result{RequeueAfter: p.requeueAfter}, nil
	}
	others, err := p.othersOfSource(ctx)
	switch {
	case err != nil:
	case others: // Another Migration of this fleet needs the Leases and has its own record.
		err = errors.Join(r.resume(ctx, m), r.removeRecord(ctx, m))
	default:
		err = p.takeFenceDown(ctx)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	r.forget(m.UID)
	if err := r.patchFinalizer(ctx, m, controllerutil.RemoveFinalizer); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("remove the finalizer: %w", err)
	}
	return reconcile.Result{}, nil
}
