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
	"machinist.dev/machinist/internal/platform/freshness"
	"machinist.dev/machinist/internal/platform/queueing"
	"machinist.dev/machinist/internal/platform/tracing"
	"machinist.dev/machinist/internal/platform/wiring"
	"machinist.dev/machinist/pkg/provider"
)

// Options are what a Reconciler works with.
type Options struct {
	// Cloud is the driver, already behind the fence, the rate limit and the metrics.
	Cloud Cloud
	// ClusterID tags the instances of this installation.
	ClusterID string
	// Client reads the control cluster from the cache, including this process's own writes.
	Client client.Client
	// Live reads the control cluster itself.
	Live client.Reader
	// MachineCacheVersion returns the resource version up to which Client's cache of Machines is complete, "" if that is
	// not known. Without it every launch asks the API server first.
	MachineCacheVersion func() string
	// Target is the cluster that machines join; nil where there is none.
	Target *Target
	// Classes resolves the class, credentials and user data of a Machine.
	Classes Classes
	// Drainer empties nodes. Needed where there is a Target.
	Drainer Drainer
	// RequireTypeVersion treats a Machine without the label of its schema as one of another schema.
	RequireTypeVersion bool
	// Signals are the conditions and taints by which a Node announces an interruption. Default interruption.Known.
	Signals interruption.Signals
	// Interrupter lists announced interruptions; nil where the driver cannot. NoticesWiring polls it.
	Interrupter provider.Interrupter
	// Reach knows the outages of the target cluster; nil where it is not probed.
	Reach Reach
	// PreserveTimeout is how long a preserved Machine is kept. Default 96 hours.
	PreserveTimeout time.Duration
	// PreserveLimit is how many Machines of one owner are preserved at a time because they failed. Default 3.
	PreserveLimit int
	// ForceDeleted records the Machines that go before their instances are known to be gone, because they are deleted by
	// force. Without it no Machine does.
	ForceDeleted ForceDeleted
	// Slots bound how many creations are under way at a time; nil means no limit.
	Slots Slots
	// Metrics may be nil.
	Metrics *Metrics
	// Tracer reports traces; nil where they are off.
	Tracer *tracing.Tracer
	// Recorder records events on Machines.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Concurrency is the number of machines worked on at once. Default 32.
	Concurrency int
}

// Cloud is a driver with its settling time resolved. Where the driver cannot adopt, Adopt fails with Unimplemented.
type Cloud interface {
	provider.Driver
	provider.Settler
	provider.Adopter
}

// Classes finds what a Machine is made from, and the credentials to remove it when its class is gone.
type Classes interface {
	// Resolve returns everything that a launch needs, or a *resolve.Error that says what is missing.
	Resolve(ctx context.Context, m *v1beta1.Machine) (resolve.Resolved, error)
	// ResolveForDeletion returns what is left of it: a missing class or user data is no error.
	ResolveForDeletion(ctx context.Context, m *v1beta1.Machine) (resolve.Resolved, error)
	// Provider returns the provider of the Machine's class, or "" when the class does not exist.
	Provider(ctx context.Context, m *v1beta1.Machine) (string, error)
}

// ForceDeleted keeps the Machines that were deleted by force although something of them may remain at the cloud, until
// orphan collection has removed that.
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
	// API returns how instances reach and verify its API server. It fails while that is not known, because the kubeconfig
	// that says it is not there yet.
	API func() (Endpoint, error)
	// TokenGroups are what bootstrap tokens authenticate as beside bootstrap.Group.
	TokenGroups []string
}

// Endpoint is how an API server is reached, by its URL, and verified.
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

// Reconcile makes one pass over a Machine.
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
	// The pass changes a copy only.
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
	p.restoreRecorded(ctx)
	waits, err := p.run(ctx)
	if err == nil {
		err = waits.check(p.requeueAfter)
	}
	keepsSlot = p.launch.keepsSlot()
	// What was learned is written even when a later step failed.
	if !errors.Is(err, errStale) {
		if statusErr := p.writeStatus(ctx); statusErr != nil && err == nil {
			err = statusErr
		}
	}
	if errors.Is(err, errStale) || apierrors.IsConflict(err) {
		// Another write came in between. Its event triggers a pass as well; this only makes sure.
		logf.FromContext(ctx).V(1).Info("Reconciling again: the machine has changed meanwhile", "cause", err.Error())
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	if err != nil && p.outage() {
		// The wait after errors in a row would be long when the cluster is back, and nothing ends it.
		logf.FromContext(ctx).Info("Reconciling again soon: the target cluster is unreachable", "cause", err.Error())
		p.requeueIn(targetPoll)
		err = nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: p.requeueAfter}, nil
}

// confirm reads the Machine live before something is done that a newer version of it might forbid: a cache may be
// late by any amount.
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

// errStale is returned by a pass that found out that the Machine is not what the cache says: nothing is written then.
var errStale = errors.New("the cached machine is out of date")

// providerOf returns the Machine's provider: from its label, else its instance, else its specification. A
// Machine without any of them, because its class does not exist, has none (""): every provider reports that.
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

// forget drops what is remembered of a Machine that is gone, or that nothing is done about any more.
func (r *Reconciler) forget(machine types.NamespacedName) {
	r.states.forget(machine)
	r.recovery.forget(machine)
	r.traces.forget(machine)
	if r.Drainer != nil {
		r.Drainer.Forget(machine)
	}
}

// pass is one reconciliation of one Machine: what all steps share, and the steps with what only they know.
type pass struct {
	*Reconciler
	// provider is ours, or empty for a Machine without one. No provider was ever called for such a Machine: it gets the
	// label before the first call.
	provider string
	// before is the Machine as it is at the API server, as far as we know; machine is what it becomes. Only the status
	// of machine is changed freely: metadata and spec go through patchMachine.
	before  *v1beta1.Machine
	machine *v1beta1.Machine
	// node is the Node of the Machine once registration has found it.
	node *corev1.Node
	now  time.Time
	// leading is since when this process works on Machines. What another one sent to the provider, it sent before.
	leading time.Time
	// requeueAfter is when to look again without an event; zero is never.
	requeueAfter time.Duration
	// spans are the phases of its life that ended in this pass, to be observed once that is written down.
	spans []span
	// gone is true once the finalizer is removed: there is no status to write any more.
	gone bool

	launch       launchStep
	instance     instanceStep
	adoption     adoptionStep
	registration registrationStep
	template     nodeTemplateStep
	interruption interruptionStep
	drain        drainStep
	health       healthStep
	update       updateStep
	agent        agentStep
	teardown     teardownStep
	preservation preservationStep
	trace        traceStep
}

// newPass gives the steps the pass that they belong to.
func newPass(p *pass) *pass {
	p.launch.pass, p.instance.pass, p.adoption.pass, p.registration.pass = p, p, p, p
	p.template.pass, p.interruption.pass, p.drain.pass, p.health.pass = p, p, p, p
	p.update.pass, p.agent.pass, p.teardown.pass, p.preservation.pass = p, p, p, p
	p.trace.pass = p
	return p
}

// run makes the pass, and returns what it waits for.
func (p *pass) run(ctx context.Context) (progress, error) {
	if machinestate.Paused(p.machine) {
		p.setCondition(v1beta1.ConditionPaused, true, v1beta1.ReasonPausedByAnnotation,
			"An annotation pauses the machine: nothing is changed at the provider, on its node or of its deletion.")
	} else {
		p.endPause()
	}
	if !p.machine.DeletionTimestamp.IsZero() {
		return p.teardown.run(ctx)
	}
	waits, err := p.live(ctx)
	p.interruption.observe() // Of an instance that is no Node yet, the provider may know.
	if err == nil {
		p.preservation.await()
	}
	p.summarize()
	if err != nil {
		return onError, err
	}
	// A generation was observed when all of it was acted upon, or when Ready says that and why it was not: who waits for a
	// change must not take a machine for ready that was ready before it.
	if waits == next || !p.isTrue(v1beta1.ConditionReady) {
		p.machine.Status.ObservedGeneration = p.machine.Generation
	}
	if p.Target != nil && p.machine.Status.FailureReason != "" && p.before.Status.FailureReason == "" {
		// What failed does not join any more; should it be lost now, it ends with its time.
		if err := p.launch.dropToken(ctx); err != nil {
			return onError, err
		}
	}
	return waits, nil
}

// live takes the steps of a Machine that is not being deleted, and returns what the first one waits for that does not
// let the next one follow.
func (p *pass) live(ctx context.Context) (progress, error) {
	for _, step := range []func(context.Context) (progress, error){
		p.claim, p.preservation.run, p.launch.run, p.launch.extendToken, p.preservation.updateUnlessPreserved,
		p.registration.run, p.interruption.run,
	} {
		if proceed, err := step(ctx); err != nil || proceed != next {
			return proceed, err
		}
	}
	return p.health.run(ctx)
}

// claim gives a hand-made Machine what a set's machines are born with.
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

// requeueIn asks for another pass after d at the latest.
func (p *pass) requeueIn(d time.Duration) {
	d = max(d, time.Millisecond)
	if p.requeueAfter == 0 || d < p.requeueAfter {
		p.requeueAfter = d
	}
}

// patchMachine changes metadata or spec of the Machine, and fails with a conflict if somebody else changed it
// meanwhile.
func (p *pass) patchMachine(ctx context.Context, change func(*v1beta1.Machine)) error {
	changed := p.before.DeepCopy()
	change(changed)
	if err := p.Client.Patch(ctx, changed, withoutStatus{p.before}); err != nil {
		return fmt.Errorf("patch machine: %w", err)
	}
	changed.ManagedFields = nil // As in the cache, whatever was sent or answered.
	p.before = changed
	p.machine.TypeMeta, p.machine.ObjectMeta = changed.TypeMeta, *changed.ObjectMeta.DeepCopy()
	p.machine.Spec = *changed.Spec.DeepCopy()
	return nil
}

// writeStatus writes what the pass changed, if anything.
func (p *pass) writeStatus(ctx context.Context) error {
	if p.gone || p.launch.silent {
		return nil
	}
	if equality.Semantic.DeepEqual(p.before.Status, p.machine.Status) {
		p.keepRecorded()
		return nil
	}
	if p.instance.onlyBooted() {
		return nil
	}
	changed := p.machine.DeepCopy()
	err := p.Client.Status().Patch(ctx, changed, statusOnly{p.before})
	if freshness.Ambiguous(err) {
		p.forgetRecorded() // It may have been stored although there was no answer.
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil // It has gone meanwhile, which the next event says.
	case err != nil:
		return fmt.Errorf("patch machine status: %w", err)
	}
	p.ownWrites.Record(changed)
	before := p.before
	p.before, p.machine = changed, changed.DeepCopy()
	p.keepRecorded()
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
