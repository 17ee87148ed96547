package migration

import (
	"context"
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
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

// Cloud is what a migration needs of the provider.
type Cloud interface {
	provider.Importer
	Name() string
	Validate(ctx context.Context, req provider.ValidateRequest) error
	List(ctx context.Context, req provider.ListRequest) (provider.ListPage, error)
	CreateSettle() time.Duration
}

// Timing is how long a migration waits for what it cannot see.
type Timing struct {
	// Probes is how many probes of the policy in a row must be refused, each over a connection of its own, ProbeInterval
	// after the one before.
	Probes        int
	ProbeInterval time.Duration
	// LeaseMargin is added to the time for which an old controller may act that lost its Lease.
	LeaseMargin time.Duration
	// EmptyFor is how long no old object may exist before the definitions of their kinds are removed.
	EmptyFor time.Duration
	// FormerLeader is for how long a migrator that lost its leadership may go on with a pass that it had begun: more than
	// the duration of the lease, and what a request takes. The fence comes down only after that.
	FormerLeader time.Duration
	// Poll is how often a migration goes on that waits for others.
	Poll time.Duration
	// Replan is how often a plan is made anew that nobody has agreed to.
	Replan time.Duration
}

// DefaultTiming is for clusters whose API servers are behind a load balancer.
var DefaultTiming = Timing{Probes: 10, ProbeInterval: 3 * time.Second, LeaseMargin: 30 * time.Second,
	EmptyFor: 30 * time.Second, FormerLeader: 30 * time.Second, Poll: 2 * time.Second, Replan: 15 * time.Second}

const (
	// soon is when a pass follows one that changed something.
	soon = 10 * time.Millisecond
	// shortly is when one follows that looks whether a change has come about.
	shortly = 250 * time.Millisecond
)

// Options are what a Reconciler works with.
type Options struct {
	// Cloud is the provider's, guarded by the fence of the process.
	Cloud Cloud
	// ClusterID marks the instances of this installation.
	ClusterID func() string
	// Control reads and writes the control cluster itself, Target the target cluster; nil where there is none.
	Control, Target client.Client
	// Fresh makes a client of the control cluster whose requests go over a connection of their own.
	Fresh func() (client.Client, error)
	// User returns the name by which the API server of the control cluster knows this process.
	User   func(context.Context) (string, error)
	Clock  clock.PassiveClock
	Timing Timing
	// Parallel is how many requests are under way at a time. Default: 8.
	Parallel int
	// Metrics counts migrations; nil counts nothing.
	Metrics *Metrics
}

// defaultParallel is for one API server.
const defaultParallel = 8

// Reconciler leads migrations from phase to phase.
type Reconciler struct {
	Options

	mu     sync.Mutex
	fences map[types.UID]*fence
	waits  map[wait]time.Time  // see since
	counts map[types.UID]count // see unchangedFor
	// written are the statuses that this process knows to be stored.
	written map[types.NamespacedName]stored
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	if o.Parallel <= 0 {
		o.Parallel = defaultParallel
	}
	return &Reconciler{Options: o, fences: map[types.UID]*fence{}, waits: map[wait]time.Time{},
		counts: map[types.UID]count{}, written: map[types.NamespacedName]stored{}}
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

// forget drops what this process knows of a Migration.
func (r *Reconciler) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.fences, uid)
	r.restart(uid)
}

// Reconcile does what the phase of one Migration asks for next.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.Metrics.lead()
	m := &v1beta1.Migration{}
	if err := r.Control.Get(ctx, req.NamespacedName, m); err != nil {
		if apierrors.IsNotFound(err) {
			r.forgetStatus(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if m.Spec.Provider != r.Cloud.Name() {
		return reconcile.Result{}, nil
	}
	before := m.DeepCopy()
	if r.restoreStatus(ctx, m) && m.Status.Phase.Ended() {
		if err := r.Control.Status().Update(ctx, m); err != nil {
			return reconcile.Result{}, fmt.Errorf("put back the status: %w", err)
		}
	}
	if m.Status.Phase.Ended() {
		r.keepStatus(m, &m.Status)
		return r.ended(ctx, m)
	}
	p := &pass{Reconciler: r, migration: m, again: r.Timing.Poll}
	err := p.run(ctx)
	if apierrors.IsConflict(err) {
		r.keepStatus(m, nil)
		return reconcile.Result{RequeueAfter: r.Timing.Poll}, nil
	}
	p.report(err)
	m.Status.ObservedGeneration = m.Generation
	changed := !equality.Semantic.DeepEqual(before.Status, m.Status)
	if changed {
		// With the resource version: whoever changed the Migration meanwhile is heard first.
		if err := r.Control.Status().Update(ctx, m); err != nil {
			r.keepStatus(m, nil) // It may have been stored although there was no answer.
			if apierrors.IsConflict(err) {
				return reconcile.Result{RequeueAfter: r.Timing.Poll}, nil
			}
			return reconcile.Result{}, fmt.Errorf("write the status: %w", err)
		}
	}
	r.keepStatus(m, &m.Status)
	if err != nil {
		return reconcile.Result{}, err
	}
	if before.Status.Phase != m.Status.Phase {
		logf.FromContext(ctx).Info("The migration goes on", "from", before.Status.Phase, "to", m.Status.Phase)
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	return reconcile.Result{RequeueAfter: p.paced(changed)}, nil
}

// pass is one reconciliation of a Migration.
type pass struct {
	*Reconciler
	migration *v1beta1.Migration
	system    source.System
	again     time.Duration
	troubles  []string
	// counted is how many troubles there were, also those that are not listed.
	counted int
	// staying says what of the old system stays after the end, and why.
	staying string
}

// maxTroubles is how many the status has.
const maxTroubles = 20

func (p *pass) trouble(format string, args ...any) {
	if p.counted++; len(p.troubles) < maxTroubles {
		p.troubles = append(p.troubles, wording.Brief(fmt.Sprintf(format, args...)))
	}
}

// run does what the phase asks for.
func (p *pass) run(ctx context.Context) error {
	m := p.migration
	system, found := source.Systems()[m.Spec.Source]
	if !found {
		p.condition(v1beta1.ConditionPlanned, false, v1beta1.ReasonPlanUnknown,
			fmt.Sprintf("spec.source: fleets of %s cannot be taken over by this version.", m.Spec.Source))
		p.again = p.Timing.Replan
		return nil
	}
	p.system = system
	if (m.Spec.Stage == v1beta1.MigrationAbort || !m.DeletionTimestamp.IsZero()) && !m.Status.Phase.Irrevocable() &&
		m.Status.Phase != v1beta1.MigrationAborting {
		return p.enter(v1beta1.MigrationAborting)
	}
	if phase := m.Status.Phase; phase != "" && phase != v1beta1.MigrationPlanning && phase != v1beta1.MigrationAborting {
		if err := p.keep(ctx); err != nil { // Somebody may have removed the finalizer.
			return err
		}
	}
	switch m.Status.Phase {
	case "":
		return p.enter(v1beta1.MigrationPlanning)
	case v1beta1.MigrationPlanning:
		return p.planning(ctx)
	case v1beta1.MigrationFencing:
		return p.fencing(ctx)
	case v1beta1.MigrationSettling:
		return p.settling(ctx)
	case v1beta1.MigrationCopying:
		return p.copying(ctx)
	case v1beta1.MigrationAdopting:
		return p.adopting(ctx)
	case v1beta1.MigrationAdopted:
		return p.adopted(ctx)
	case v1beta1.MigrationCommitting:
		return p.committing(ctx)
	case v1beta1.MigrationRemoving:
		return p.removing(ctx)
	case v1beta1.MigrationCleaning:
		return p.cleaning(ctx)
	case v1beta1.MigrationAborting:
		return p.aborting(ctx)
	}
	return nil
}

// enter begins a phase. It is written before anything of the phase is done.
func (p *pass) enter(phase v1beta1.MigrationPhase) error {
	p.migration.Status.Phase = phase
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restart(p.migration.UID)
	return nil
}

func (p *pass) condition(kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&p.migration.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
		Message: wording.Brief(message), ObservedGeneration: p.migration.Generation,
		LastTransitionTime: metav1.NewTime(p.Clock.Now())})
}

// report sets the conditions that follow from the phase and from what was met.
func (p *pass) report(err error) {
	status := &p.migration.Status
	if err != nil {
		p.trouble("%s", withRemedy(err))
	}
	status.Troubles = p.troubles
	switch {
	case p.counted > 0:
		p.condition(v1beta1.ConditionStuck, true, v1beta1.ReasonTroubles,
			fmt.Sprintf("%s in the way; the first: %s", wording.Count(p.counted, "trouble"), p.troubles[0]))
	default:
		p.condition(v1beta1.ConditionStuck, false, v1beta1.ReasonNothingInTheWay, "")
	}
	switch status.Phase {
	case v1beta1.MigrationAdopted, v1beta1.MigrationCommitting, v1beta1.MigrationRemoving, v1beta1.MigrationCleaning:
		p.condition(v1beta1.ConditionAdopted, true, v1beta1.ReasonMigrated, "")
		p.condition(v1beta1.ConditionCompleted, false, v1beta1.ReasonMigrating, "")
	case v1beta1.MigrationCompleted:
		p.condition(v1beta1.ConditionCompleted, true, v1beta1.ReasonMigrated, p.staying)
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

// fenced puts up the fence, or sees that it stands. Nothing else must be done in a pass in which it does not.
func (p *pass) fenced(ctx context.Context, scope fenceScope) (bool, error) {
	waits, err := p.ensureFence(ctx, p.migration, p.system, scope)
	if err != nil || waits != "" {
		message := waits
		if err != nil {
			message = err.Error()
		}
		p.condition(v1beta1.ConditionFenced, false, v1beta1.ReasonStoppingOldControllers, message)
		p.again = min(p.again, p.Timing.ProbeInterval)
		return false, err
	}
	p.condition(v1beta1.ConditionFenced, true, v1beta1.ReasonOldControllersStopped, "")
	return true, nil
}

// keep holds the Migration until it has ended, so that its record is not lost. One that is being deleted takes no
// finalizer any more.
func (p *pass) keep(ctx context.Context) error {
	if controllerutil.ContainsFinalizer(p.migration, v1beta1.MigrationFinalizer) ||
		!p.migration.DeletionTimestamp.IsZero() {
		return nil
	}
	status := p.migration.Status
	controllerutil.AddFinalizer(p.migration, v1beta1.MigrationFinalizer)
	if err := p.Control.Update(ctx, p.migration); err != nil {
		return fmt.Errorf("add the finalizer: %w", err)
	}
	p.migration.Status = status
	return nil
}

// ended takes the fence down once more when no other migrator can put a part of it up any more: one that was in the
// middle of a pass would keep the old controllers out for good. The phase before waited for the same, so that this
// finds only the fence of one whose host was suspended for longer than that.
func (r *Reconciler) ended(ctx context.Context, m *v1beta1.Migration) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(m, v1beta1.MigrationFinalizer) {
		r.forget(m.UID)
		return reconcile.Result{}, nil
	}
	p := &pass{Reconciler: r, migration: m}
	if !p.alone() {
		return reconcile.Result{RequeueAfter: p.again}, nil
	}
	others, err := p.othersOfSource(ctx)
	if err == nil && !others { // Whoever takes the fleet over now has a fence of its own.
		err = p.takeFenceDown(ctx)
	}
	if err == nil && !others && m.Status.Phase == v1beta1.MigrationAborted {
		err = r.startWorkloads(ctx, m)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	r.forget(m.UID)
	return reconcile.Result{}, r.letGo(ctx, m)
}

// letGo ends the hold on a Migration.
func (r *Reconciler) letGo(ctx context.Context, m *v1beta1.Migration) error {
	if !controllerutil.RemoveFinalizer(m, v1beta1.MigrationFinalizer) {
		return nil
	}
	if err := r.Control.Update(ctx, m); err != nil {
		return fmt.Errorf("remove the finalizer: %w", client.IgnoreNotFound(err))
	}
	return nil
}
