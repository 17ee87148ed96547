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
	// Cloud is the driver, wrapped with the fence, the rate limit and the metrics.
	Cloud Cloud
	// ClusterID is the cluster ID in the tags of all instances of this installation.
	ClusterID string
	// Client reads the control cluster from a cache that includes this process's own writes.
	Client client.Client
	// Live reads the control cluster without a cache.
	Live client.Reader
	// MachineCacheVersion returns the resource version up to which Client's cache contains all changes of Machines. The
	// result is "" if the version is not known. If MachineCacheVersion is nil, each launch first reads the Machine from
	// the API server.
	MachineCacheVersion func() string
	// Target is the cluster that the machines join. Nil means that machines join no cluster.
	Target *Target
	// Classes resolves the class, credentials and user data of a Machine.
	Classes Classes
	// Drainer drains Nodes. It is required if Target is set.
	Drainer Drainer
	// RequireTypeVersion means that a Machine without the type-version label is treated like a Machine with an unknown
	// type version.
	RequireTypeVersion bool
	// Signals are the conditions and taints with which a Node announces an interruption. Default interruption.Known.
	Signals interruption.Signals
	// Interrupter lists announced interruptions. It is nil if the driver cannot list interruptions.
	Interrupter provider.Interrupter
	// Reach reports outages of the target cluster. It is nil if the process does not probe the target cluster.
	Reach Reach
	// PreserveTimeout is how long a failed Machine is preserved. Default 96 hours.
	PreserveTimeout time.Duration
	// PreserveLimit is the maximum number of failed Machines of one owner that are preserved at the same time. Default 3.
	PreserveLimit int
	// ForceDeleted records the Machines that are force-deleted although their instances may still exist. If it is nil, all
	// deletions wait for the instance.
	ForceDeleted ForceDeleted
	// Slots limits the number of creations that run at the same time. Nil means no limit.
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

// Cloud is a driver that also has a settle time and can adopt instances. If the driver does not support adoption, Adopt
// returns an Unimplemented error.
type Cloud interface {
	provider.Driver
	provider.Settler
	provider.Adopter
}

// Classes reads what a Machine's class references: the inputs for the creation of an instance, and the credentials for
// its deletion.
type Classes interface {
	// Resolve returns everything that a launch needs. If something is missing, it returns a *resolve.Error that names it.
	Resolve(ctx context.Context, m *v1beta1.Machine) (resolve.Resolved, error)
	// ResolveForDeletion returns those inputs that still exist. A missing class or missing user data is not an error.
	ResolveForDeletion(ctx context.Context, m *v1beta1.Machine) (resolve.Resolved, error)
	// Provider returns the provider that the Machine's class names, or "" if the class does not exist.
	Provider(ctx context.Context, m *v1beta1.Machine) (string, error)
}

// ForceDeleted stores the force-deleted Machines whose instances may remain in the cloud. Orphan removal deletes these
// instances.
type ForceDeleted interface {
	// AddForceDeleted records the Machine durably. It may fail with a conflict.
	AddForceDeleted(ctx context.Context, m *v1beta1.Machine, at time.Time) error
}

// Target is the cluster in which machines become Nodes.
type Target struct {
	// Nodes reads Nodes from a cache that includes this process's own writes. It also writes Nodes.
	Nodes client.Client
	// Live reads and writes without a cache.
	Live client.Client
	// API returns the URL and the CA bundle with which instances connect to the API server. It returns an error until the
	// kubeconfig with these values is available.
	API func() (Endpoint, error)
	// TokenGroups are the groups of bootstrap tokens in addition to bootstrap.Group.
	TokenGroups []string
}

// Endpoint is the URL of an API server and the CA bundle that verifies the server's certificate.
type Endpoint struct {
	URL      string
	CABundle []byte
}

// Reconciler reconciles the Machines of one provider.
type Reconciler struct {
	Options
	tokens    bootstrap.Tokens
	joins     *kubeletcsr.Joins
	states    *stateStore
	traces    *traceStates
	term      *leadershipTerm
	ownWrites *wiring.OwnWrites
	// recovery contains the Machines whose last call failed and that wait until the cloud has recovered.
	recovery *recovery
	trigger  queueing.Trigger
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

// Reconcile runs one pass for a Machine.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	now := r.Clock.Now()
	leading := r.states.leadingSince(now)
	keepsSlot := false
	defer func() {
		if !keepsSlot {
			r.Slots.Release(req.NamespacedName)
		}
	}()
	r.Metrics.startLeading()
	m := &v1beta1.Machine{}
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
	ctx = p.trace.beginPass(ctx)
	p.machine.Status.Conditions = conditionlimit.Machine.Apply(p.machine.Status.Conditions)
	waits, err := p.run(ctx)
	if err == nil {
		err = waits.check(p.requeueAfter)
	}
	keepsSlot = p.launch.keepsSlot()
	if !errors.Is(err, errStale) {
		if statusErr := p.writeStatus(ctx); statusErr != nil && err == nil {
			err = statusErr
		}
	}
	if errors.Is(err, errStale) || apierrors.IsConflict(err) {
		// Another client has changed the Machine during the pass. The watch event of that change also triggers a pass. The
		// requeue is a backstop.
		logf.FromContext(ctx).V(1).Info("Reconciling again: the machine changed during this pass", "cause", err.Error())
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	if err != nil && p.outage() {
		// Do not return the error. After several errors, the backoff could outlast the outage, and no event is
		// triggered at the end of an outage.
		logf.FromContext(ctx).Info("Reconciling again soon: the target cluster is unreachable", "cause", err.Error())
		p.requeueIn(targetPoll)
		err = nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: p.requeueAfter}, nil
}

// confirm reads the Machine from the API server before an action that a newer version of the Machine could forbid. The
// cached Machine may be very old.
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

// errStale means that the cached Machine is outdated. The pass then writes nothing.
var errStale = errors.New("the cached machine is out of date")

// providerOf returns the provider of the Machine from its label, its instance, its spec or its class, in this order. If
// none of them names a provider, providerOf returns "", and every provider reports the Machine.
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

func (r *Reconciler) forget(machine types.NamespacedName) {
	r.states.forget(machine)
	r.recovery.forget(machine)
	r.traces.forget(machine)
	if r.Drainer != nil {
		r.Drainer.Forget(machine)
	}
}

// pass is one reconciliation of one Machine. It contains the steps, and the state that all steps share.
type pass struct {
	*Reconciler
	// provider is the name of this process's provider. It is "" if the Machine has no provider label. The cloud was
	// never called for such a Machine, because a Machine gets the label before the first call.
	provider string
	// The field before contains the Machine as the API server last returned it. The field machine contains the copy
	// that this pass changes. Steps may change only the status of that copy directly.
	before  *v1beta1.Machine
	machine *v1beta1.Machine
	// node is the Machine's Node. It is nil until the registration step has found the Node.
	node *corev1.Node
	now  time.Time
	// leading is the time at which this process began to reconcile Machines. All calls of other processes to the cloud
	// began before that time.
	leading time.Time
	// requeueAfter is the time after which the next pass runs if no event triggers one earlier. Zero means that only an
	// event triggers the next pass.
	requeueAfter time.Duration
	// spans are the phases of the Machine's life that ended in this pass. The metrics are updated after the status is
	// written.
	spans []span
	// gone means that the finalizer was removed. The status is then not written any more.
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

func newPass(p *pass) *pass {
	p.launch.pass, p.instance.pass, p.adoption.pass, p.registration.pass = p, p, p, p
	p.template.pass, p.outdated.pass, p.interruption.pass, p.drain.pass, p.health.pass = p, p, p, p, p
	p.update.pass, p.agent.pass, p.teardown.pass, p.preservation.pass = p, p, p, p
	p.trace.pass = p
	return p
}

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
	p.interruption.observe() // The provider may announce an interruption before there is a Node.
	if err == nil {
		p.preservation.requeueIfDue()
	}
	p.summarize()
	if err != nil {
		return onError, err
	}
	// The observed generation is set if the controller has processed the generation completely, or if Ready is not True
	// and explains why. Otherwise, a client that waits for a change would take an old Ready=True for the new state.
	if waits == next || !p.isTrue(v1beta1.ConditionReady) {
		p.machine.Status.ObservedGeneration = p.machine.Generation
	}
	if p.Target != nil && p.machine.Status.FailureReason != "" && p.before.Status.FailureReason == "" {
		// A failed machine must not join any more. If the process is killed before the token is deleted, the token expires
		// later.
		if err := p.launch.dropToken(ctx); err != nil {
			return onError, err
		}
	}
	return waits, nil
}

// runSteps runs the steps of a Machine that is not being deleted, until one of them must wait. It returns what this
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

// claim adds the finalizer and the provider label to a Machine that a user has created. A MachineSet creates its
// Machines with both.
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

func (p *pass) requeueIn(d time.Duration) {
	d = max(d, time.Millisecond)
	if p.requeueAfter == 0 || d < p.requeueAfter {
		p.requeueAfter = d
	}
}

// patchMachine changes the metadata or the spec of the Machine. It returns a conflict if another client has changed the
// Machine in the meantime.
func (p *pass) patchMachine(ctx context.Context, change func(*v1beta1.Machine)) error {
	changed := p.before.DeepCopy()
	change(changed)
	if err := p.Client.Patch(ctx, changed, withoutStatus{p.before}); err != nil {
		return fmt.Errorf("patch machine: %w", err)
	}
	changed.ManagedFields = nil // The cache contains no managed fields either.
	p.before = changed
	p.machine.TypeMeta, p.machine.ObjectMeta = changed.TypeMeta, *changed.ObjectMeta.DeepCopy()
	p.machine.Spec = *changed.Spec.DeepCopy()
	return nil
}

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
	p.trace.statusWritten(before, p.spans)
	p.observeSpans()
	p.Metrics.countInterruption(p.interruption.noticed)
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
