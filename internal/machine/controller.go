package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/machine/interruption"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/conditionlimit"
	"machinist.dev/machinist/internal/platform/queueing"
	"machinist.dev/machinist/internal/platform/tracing"
	"machinist.dev/machinist/internal/platform/wiring"
	"machinist.dev/machinist/pkg/provider"
)

// Options are the dependencies and settings of a Reconciler.
type Options struct {
	// Cloud is the driver, already behind the fence, the rate limit and the metrics.
	Cloud Cloud
	// ClusterID tags the instances of this installation.
	ClusterID string
	// Client reads the control cluster from the cache, including this process's own writes.
	Client client.Client
	// Live reads the control cluster itself.
	Live client.Reader
	// MachineCacheVersion returns the resource version up to which Client's cache of Machines is complete, or "" if that
	// is not known. If it is nil, every launch reads the Machine from the API server first.
	MachineCacheVersion func() string
	// Target is the cluster that machines join, or nil if there is none.
	Target *Target
	// Classes resolves the class, credentials and user data of a Machine.
	Classes Classes
	// Drainer drains Nodes. It is required if there is a Target.
	Drainer Drainer
	// RequireTypeVersion treats a Machine without the type-version label as one with an unknown type version.
	RequireTypeVersion bool
	// Signals are the conditions and taints by which a Node announces an interruption. Default interruption.Known.
	Signals interruption.Signals
	// Interrupter lists announced interruptions. It is nil if the driver cannot list them. NoticesWiring polls it.
	Interrupter provider.Interrupter
	// Reach reports outages of the target cluster. It is nil if the cluster is not probed.
	Reach Reach
	// PreserveTimeout is how long a preserved Machine is kept. Default 96 hours.
	PreserveTimeout time.Duration
	// PreserveLimit is how many failed Machines of one owner are preserved at the same time. Default 3.
	PreserveLimit int
	// ForceDeleted records the Machines that are force-deleted before their instances are known to be gone. If it is
	// nil, no Machine is force-deleted.
	ForceDeleted ForceDeleted
	// Slots limit how many creations run at the same time. Nil means no limit.
	Slots Slots
	// Metrics may be nil.
	Metrics *Metrics
	// Tracer reports traces. It is nil if tracing is off.
	Tracer *tracing.Tracer
	// Recorder records events on Machines.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Concurrency is the number of Machines that are reconciled at the same time. Default 32.
	Concurrency int
}

// Cloud is a driver with its settle time resolved. If the driver cannot adopt, Adopt fails with Unimplemented.
type Cloud interface {
	provider.Driver
	provider.Settler
	provider.Adopter
}

// Classes finds the inputs from which an instance is created, and the credentials to delete it when its class is gone.
type Classes interface {
	// Resolve returns everything that a launch needs, or a *resolve.Error that names what is missing.
	Resolve(ctx context.Context, m *v1beta1.Machine) (resolve.Resolved, error)
	// ResolveForDeletion returns the inputs that still exist. A missing class or missing user data is not an error.
	ResolveForDeletion(ctx context.Context, m *v1beta1.Machine) (resolve.Resolved, error)
	// Provider returns the provider of the Machine's class, or "" if the class does not exist.
	Provider(ctx context.Context, m *v1beta1.Machine) (string, error)
}

// ForceDeleted records the force-deleted Machines of which something may remain in the cloud, until orphan removal has
// removed it.
type ForceDeleted interface {
	// AddForceDeleted records the Machine durably. It may fail with a conflict.
	AddForceDeleted(ctx context.Context, m *v1beta1.Machine, at time.Time) error
}

// Target is the cluster in which machines become Nodes.
type Target struct {
	// Nodes reads Nodes from the cache, including this process's own writes, and writes them.
	Nodes client.Client
	// Live reads and writes the cluster itself.
	Live client.Client
	// API returns how instances reach and verify the API server. It fails until the kubeconfig with this information is
	// available.
	API func() (Endpoint, error)
	// TokenGroups are the groups of bootstrap tokens in addition to bootstrap.Group.
	TokenGroups []string
}

// Endpoint is the URL of an API server and the CA bundle that verifies it.
type Endpoint struct {
	URL      string
	CABundle []byte
}

// Reconciler brings the Machines of one provider to their desired state.
type Reconciler struct {
	Options
	tokens    bootstrap.Tokens
	joins     *kubeletcsr.Joins
	states    *stateStore
	traces    *traceStates
	term      *leadershipTerm
	ownWrites *wiring.OwnWrites
	// recovery has the Machines that wait for a cloud that failed.
	recovery *recovery
	// trigger enqueues Machines whose instances seem to be missing or are about to be reclaimed.
	trigger queueing.Trigger
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	if o.Concurrency <= 0 {
		o.Concurrency = 32
	}
	if o.PreserveTimeout <= 0 {
		o.PreserveTimeout = DefaultPreserveTimeout
	}
	if o.PreserveLimit <= 0 {
		o.PreserveLimit = DefaultPreserveLimit
	}
	if o.Signals == nil {
		o.Signals = interruption.Known()
	}
	if o.Slots == nil {
		o.Slots = unlimited{}
	}
	r := &Reconciler{Options: o, states: newStateStore(), traces: &traceStates{},
		term: &leadershipTerm{}, ownWrites: &wiring.OwnWrites{},
		recovery: &recovery{}}
	if o.Target != nil {
		r.tokens = bootstrap.Tokens{Client: o.Target.Live, Groups: o.Target.TokenGroups}
		r.joins = kubeletcsr.NewJoins(o.Target.Live)
	}
	return r
}

// Reconcile runs one pass over a Machine.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	now := r.Clock.Now()
	leading := r.states.since(now)
	keepsSlot := false
	defer func() {
		if !keepsSlot {
			r.Slots.Release(req.NamespacedName)
		}
	}()
	r.Metrics.lead()
	m := &v1beta1.Machine{}
	// The pass changes only a copy.
	if err := r.Client.Get(ctx, req.NamespacedName, m, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("read machine: %w", err)
	}
	if r.states.get(m).teardown.released {
		return reconcile.Result{}, nil
	}
	name, err := r.providerOf(ctx, m)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case name != "" && name != r.Cloud.Name():
		return reconcile.Result{}, nil
	}
	p := newPass(&pass{Reconciler: r, provider: name, machine: m.DeepCopy(), before: m, now: now, leading: leading})
	ctx = p.trace.begin(ctx)
	p.machine.Status.Conditions = conditionlimit.Machine.Apply(p.machine.Status.Conditions)
	waits, err := p.run(ctx)
	if err == nil {
		err = waits.check(p.requeueAfter)
	}
	keepsSlot = p.launch.keepsSlot()
	// What the pass learned is written even if a later step failed.
	if !errors.Is(err, errStale) {
		if statusErr := p.writeStatus(ctx); statusErr != nil && err == nil {
			err = statusErr
		}
	}
	if errors.Is(err, errStale) || apierrors.IsConflict(err) {
		// Another client changed the Machine during the pass. The event of that change triggers a pass as well. The
		// requeue is a backstop.
		logf.FromContext(ctx).V(1).Info("Reconciling again: the machine changed during this pass", "cause", err.Error())
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	if err != nil && p.outage() {
		// The backoff after several errors could outlast the outage, and no event would end it.
		logf.FromContext(ctx).Info("Reconciling again soon: the target cluster is unreachable", "cause", err.Error())
		p.requeueIn(targetPoll)
		err = nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: p.requeueAfter}, nil
}

// confirm reads the Machine from the API server before an action that a newer version of the Machine might forbid. A
// cache may lag behind by any amount.
func (p *pass) confirm(ctx context.Context, before string) error {
	live := &v1beta1.Machine{}
	switch err := p.Live.Get(ctx, client.ObjectKeyFromObject(p.machine), live); {
	case apierrors.IsNotFound(err):
		return errStale
	case err != nil:
		return fmt.Errorf("read machine before %s: %w", before, err)
	case live.UID != p.machine.UID || live.ResourceVersion != p.before.ResourceVersion:
		return errStale
	}
	return nil
}

// errStale is returned by a pass that found the cached Machine to be out of date. Such a pass writes nothing.
var errStale = errors.New("the cached machine is out of date")

// providerOf returns the Machine's provider: from its label, else its instance, else its specification, else its class.
// It returns "" if none of them names a provider and the class does not exist. Every provider reports such a Machine.
func (r *Reconciler) providerOf(ctx context.Context, m *v1beta1.Machine) (string, error) {
	name := machinestate.Provider(m)
	if name == "" {
		var err error
		if name, err = r.Classes.Provider(ctx, m); err != nil {
			return "", fmt.Errorf("find the provider of machine %s: %w", client.ObjectKeyFromObject(m), err)
		}
	}
	return name, nil
}

// forget drops what is remembered of a Machine that is gone or no longer handled.
func (r *Reconciler) forget(machine types.NamespacedName) {
	r.states.forget(machine)
	r.recovery.forget(machine)
	r.traces.forget(machine)
	if r.Drainer != nil {
		r.Drainer.Forget(machine)
	}
}

// pass is one reconciliation of one Machine: the state that all steps share, and the steps.
type pass struct {
	*Reconciler
	// provider is the name of our provider, or "" for a Machine without the provider label. The cloud was never called for
	// such a Machine, because a Machine gets the provider label before the first call.
	provider string
	// before is the Machine as the API server last returned it, and machine is the version that this pass changes.
	// Steps change only the status of machine directly. Metadata and spec are changed by patchMachine.
	before  *v1beta1.Machine
	machine *v1beta1.Machine
	// node is the Node of the Machine once registration has found it.
	node *corev1.Node
	now  time.Time
	// leading is the time at which this process began to reconcile Machines. Calls that another process made to the cloud
	// began before that time.
	leading time.Time
	// requeueAfter is the time until the next pass if no event comes first. Zero means that only events trigger it.
	requeueAfter time.Duration
	// spans are the phases of the Machine's life that ended in this pass. They are observed once the status is written.
	spans []span
	// gone is true once the finalizer is removed. There is no status to write any more.
	gone bool

	launch       launchStep
	instance     instanceStep
	adoption     adoptionStep
	registration registrationStep
	template     nodeTemplateStep
	outdated     outdatedStep
	interruption interruptionStep
	drain        drainStep
	health       healthStep
	update       updateStep
	agent        agentStep
	teardown     teardownStep
	preservation preservationStep
	trace        traceStep
}

// newPass sets the pass in each of its steps.
func newPass(p *pass) *pass {
	p.launch.pass, p.instance.pass, p.adoption.pass, p.registration.pass = p, p, p, p
	p.template.pass, p.outdated.pass, p.interruption.pass, p.drain.pass, p.health.pass = p, p, p, p, p
	p.update.pass, p.agent.pass, p.teardown.pass, p.preservation.pass = p, p, p, p
	p.trace.pass = p
	return p
}

// run runs the pass and returns what the Machine waits for.
func (p *pass) run(ctx context.Context) (progress, error) {
	if machinestate.Paused(p.machine) {
		p.setCondition(v1beta1.ConditionPaused, true, v1beta1.ReasonPausedByAnnotation,
			"An annotation pauses the machine. Machinist does not change its instance or its node, and does not continue its deletion.")
	} else {
		p.endPause()
	}
	if !p.machine.DeletionTimestamp.IsZero() {
		return p.teardown.run(ctx)
	}
	waits, err := p.runSteps(ctx)
	p.interruption.observe() // The provider may report the interruption of an instance that is not a Node yet.
	if err == nil {
		p.preservation.requeueIfDue()
	}
	p.summarize()
	if err != nil {
		return onError, err
	}
	// A generation counts as observed when it was acted upon completely, or when Ready is not True and explains why it
	// was not. A client that waits for a change must not mistake a machine that was Ready before the change for one
	// that is Ready after it.
	if waits == next || !p.isTrue(v1beta1.ConditionReady) {
		p.machine.Status.ObservedGeneration = p.machine.Generation
	}
	if p.Target != nil && p.machine.Status.FailureReason != "" && p.before.Status.FailureReason == "" {
		// A failed machine does not join any more. If this deletion gets lost, the token expires.
		if err := p.launch.dropToken(ctx); err != nil {
			return onError, err
		}
	}
	return waits, nil
}

// runSteps runs the steps of a Machine that is not being deleted, until one of them has to wait. It returns what that
// step waits for.
func (p *pass) runSteps(ctx context.Context) (progress, error) {
	for _, step := range []func(context.Context) (progress, error){
		p.claim, p.preservation.run, p.launch.run, p.launch.extendToken, p.preservation.updateUnlessPreserved,
		p.registration.run, p.outdated.run, p.interruption.run,
	} {
		if proceed, err := step(ctx); err != nil || proceed != next {
			return proceed, err
		}
	}
	return p.health.run(ctx)
}

// claim gives a Machine that was created by hand the finalizer and the label that the machines of a set are created
// with.
func (p *pass) claim(ctx context.Context) (progress, error) {
	if p.provider == "" || hasFinalizer(p.machine) && p.machine.Labels[v1beta1.LabelProvider] != "" {
		return next, nil
	}
	return next, p.patchMachine(ctx, func(m *v1beta1.Machine) {
		if !hasFinalizer(m) {
			m.Finalizers = append(m.Finalizers, v1beta1.MachineFinalizer)
		}
		set(&m.Labels, v1beta1.LabelProvider, p.provider)
	})
}

// requeueIn schedules another pass after d at the latest.
func (p *pass) requeueIn(d time.Duration) {
	d = max(d, time.Millisecond)
	if p.requeueAfter == 0 || d < p.requeueAfter {
		p.requeueAfter = d
	}
}

// patchMachine changes metadata or spec of the Machine. It fails with a conflict if another client changed the Machine
// in the meantime.
func (p *pass) patchMachine(ctx context.Context, change func(*v1beta1.Machine)) error {
	changed := p.before.DeepCopy()
	change(changed)
	if err := p.Client.Patch(ctx, changed, withoutStatus{p.before}); err != nil {
		return fmt.Errorf("patch machine: %w", err)
	}
	changed.ManagedFields = nil // As in the cache, whatever was sent or returned.
	p.before = changed
	p.machine.TypeMeta, p.machine.ObjectMeta = changed.TypeMeta, *changed.ObjectMeta.DeepCopy()
	p.machine.Spec = *changed.Spec.DeepCopy()
	return nil
}

// writeStatus writes the status if the pass changed it.
func (p *pass) writeStatus(ctx context.Context) error {
	if p.gone || p.launch.silent {
		return nil
	}
	if equality.Semantic.DeepEqual(p.before.Status, p.machine.Status) || p.instance.onlyBooted() {
		return nil
	}
	changed := p.machine.DeepCopy()
	switch err := p.Client.Status().Patch(ctx, changed, statusOnly{p.before}); {
	case apierrors.IsNotFound(err):
		return nil // The Machine is gone. Its delete event follows.
	case err != nil:
		return fmt.Errorf("patch machine status: %w", err)
	}
	p.ownWrites.Record(changed)
	before := p.before
	p.before, p.machine = changed, changed.DeepCopy()
	p.states.update(p.machine, func(m *machineState) {
		m.instance.booted = nil
		if p.drain.unwritten.kind != "" {
			m.teardown.drainReport = p.drain.unwritten
		}
	})
	p.trace.written(before, p.spans)
	p.observeSpans()
	p.Metrics.interrupted(p.interruption.noticed)
	p.interruption.noticed = ""
	return nil
}

func hasFinalizer(m *v1beta1.Machine) bool {
	for _, f := range m.Finalizers {
		if f == v1beta1.MachineFinalizer {
			return true
		}
	}
	return false
}
