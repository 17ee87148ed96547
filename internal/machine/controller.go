package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr"
	"machinist.dev/machinist/internal/class/capacity"
	"machinist.dev/machinist/internal/machine/interruption"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/machine/preservation"
	"machinist.dev/machinist/internal/platform/conditionlimit"
	"machinist.dev/machinist/internal/platform/objectstate"
	"machinist.dev/machinist/internal/platform/queueing"
	"machinist.dev/machinist/internal/platform/wiring"
	"machinist.dev/machinist/pkg/provider"
)

// Reconciler reconciles the Machines of one provider.
type Reconciler struct {
	Options
	tokens    bootstrap.Tokens
	joins     *kubeletcsr.JoinFinder
	states    *stateStore
	traces    objectstate.Store[traceState]
	term      leadershipTerm
	ownWrites *wiring.OwnWrites
	// recovery contains the Machines whose last call failed and that wait until the cloud has recovered.
	recovery *recovery
	capacity *capacity.Memory
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
		o.Signals = interruption.KnownSignals()
	}
	if o.Slots == nil {
		o.Slots = unlimited{}
	}
	r := &Reconciler{Options: o, states: newStateStore(), ownWrites: &wiring.OwnWrites{}, recovery: &recovery{},
		capacity: capacity.New(capacity.Options{Driver: o.Cloud, Client: o.Client, LiveReader: o.LiveReader,
			Recorder: o.Recorder, Clock: o.Clock})}
	if o.Target != nil {
		r.tokens = bootstrap.Tokens{Client: o.Target.LiveClient, Groups: o.Target.TokenGroups}
		r.joins = kubeletcsr.NewJoinFinder(o.Target.LiveClient)
	}
	return r
}

// Reconcile runs one pass for a Machine.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	now := r.Clock.Now()
	leading := r.states.leadingSince(now)
	keepsSlot, keepsProbe := false, false
	defer func() {
		if !keepsSlot {
			r.Slots.Release(req.NamespacedName)
		}
		if !keepsProbe {
			r.releaseProbe(req.NamespacedName)
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
	if r.states.get(m).teardown.finalizerRemoved {
		return reconcile.Result{}, nil
	}
	name, err := r.providerOf(ctx, m)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case name != "" && name != r.Cloud.Name():
		return reconcile.Result{}, nil
	}
	p := newPass(r, name, m, now, leading)
	ctx = p.trace.beginPass(ctx)
	p.machine.Status.Conditions = conditionlimit.Machine.Apply(p.machine.Status.Conditions)
	waits, err := p.run(ctx)
	if err == nil {
		err = waits.check(p.requeueAfter)
	}
	keepsSlot, keepsProbe = p.keepsSlot(waits), p.keepsProbe(waits)
	if !errors.Is(err, errStale) && waits&silently == 0 {
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
		// Do not return the error. Each error increases the backoff, which could become longer than the outage. The end
		// of an outage triggers no event that would end the backoff.
		logf.FromContext(ctx).Info("Reconciling again soon: the target cluster is unreachable", "cause", err.Error())
		p.requeueIn(targetPoll)
		err = nil
	}
	if refused, ok := errors.AsType[*provider.Error](err); ok {
		// The queue would repeat the call to the cloud within milliseconds.
		logf.FromContext(ctx).Info("Reconciling again later: a call to the cloud has failed", "cause", err.Error())
		p.lookupFailed(refused)
		err = nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: p.requeueAfter}, nil
}

// providerOf returns the provider of the Machine from its label, its instance, its spec or its class, in this order. If
// the provider is unknown, providerOf returns "", and every provider reports the Machine.
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
	r.states.machines.Forget(machine)
	r.recovery.forget(machine)
	r.traces.Forget(machine)
	if r.Drainer != nil {
		r.Drainer.Forget(machine)
	}
}

func (p *pass) run(ctx context.Context) (progress, error) {
	if machinestate.IsPaused(p.machine) {
		p.setCondition(v1beta1.ConditionPaused, true, v1beta1.ReasonPausedByAnnotation,
			"An annotation pauses the machine. Machinist does not change its instance or its node, and does not continue its deletion.")
	} else {
		p.endPause()
	}
	p.reportMissingOwner()
	if !p.machine.DeletionTimestamp.IsZero() {
		return p.remove(ctx)
	}
	waits, err := p.keep(ctx)
	if err == nil {
		err = p.recordCapacityFound(ctx)
	}
	p.observeInterruption() // The provider may announce an interruption before there is a Node.
	if err == nil {
		p.requeueIfDue()
	}
	p.summarize()
	if err != nil {
		return onError, err
	}
	// Set the observed generation if the pass has processed the generation completely, or if the status says why Ready
	// is not True. Otherwise, a client that waits for a change would take an old Ready=True for the new state.
	if waits == next || !p.isTrue(v1beta1.ConditionReady) {
		p.machine.Status.ObservedGeneration = p.machine.Generation
	}
	if p.Target != nil && p.machine.Status.FailureReason != "" && p.original.Status.FailureReason == "" {
		// A failed machine must not join any more. If the process is killed before the token is deleted, the token expires
		// later.
		if err := p.dropToken(ctx); err != nil {
			return onError, err
		}
	}
	return waits, nil
}

// keep runs the steps of a Machine that is not being deleted, until one of them must wait. It returns what this step
// waits for.
func (p *pass) keep(ctx context.Context) (progress, error) {
	return inOrder(ctx, p.claim, p.preserve, p.ensureInstance, p.extendToken, p.ensureUpToDate,
		p.rebootOnRequest, p.reachPowerState, p.ensureNode, p.reportJoined, p.taintOutdated,
		p.handleInterruption, p.checkHealth)
}

// remove runs the steps of a Machine that is being deleted: preDrain hooks, drain, preTerminate hooks, instance, Node,
// token and finalizer.
func (p *pass) remove(ctx context.Context) (progress, error) {
	if proceed := p.mayRemove(); proceed != next {
		return proceed, nil
	}
	r := &removal{pass: p}
	return inOrder(ctx, r.orByForce(r.findUnrecordedInstance), r.orByForce(r.findLost), r.awaitPreDrainHooks, r.findNode,
		p.observeInDeletion, r.drainNode, r.awaitPreTerminateHooks, r.orByForce(r.deleteInstance), r.deleteNode, r.release)
}

// ensureInstance creates or adopts the instance of a Machine that has none, and follows the instance until it runs.
func (p *pass) ensureInstance(ctx context.Context) (progress, error) {
	switch m := p.machine; {
	case m.IsReplacing():
		return next, nil // The old instance is deleted first.
	case m.Retrying():
		return p.retryLaunch(ctx)
	case m.Spec.ProviderID == "":
		return p.launchInstance(ctx)
	case createdWithProviderID(m):
		return p.adoptInstance(ctx)
	}
	if p.machine.IsAwaitingCapacity() {
		p.machine.Status.Launch.Step = v1beta1.LaunchStepNone // Another client wrote this step, because an instance exists.
	}
	proceed, tagged, err := p.followInstance(ctx)
	if err == nil && !tagged {
		return p.adoptInstance(ctx)
	}
	return proceed, err
}

// retryLaunch deletes an instance that failed for lack of capacity. Then retryLaunch opens the next attempt, which
// starts when the delay after the failure is over. Each step can be repeated after a crash.
func (p *pass) retryLaunch(ctx context.Context) (progress, error) {
	m := p.machine
	if machinestate.IsPaused(m) || preservation.IsPreserved(m) || p.unsupportedSchema(m) != "" {
		return onMachine, nil
	}
	if m.Spec.ProviderID != "" {
		r := &removal{pass: p}
		if proceed, err := r.findNode(ctx); err != nil || proceed != next {
			return proceed, err
		}
		switch {
		case p.node != nil:
			return p.continueRunning(), nil
		case r.leftBehind:
			return p.after(targetPoll), nil // The instance may have become a Node.
		}
		if proceed, err := inOrder(ctx, r.deleteInstance, r.deleteNode, p.forgetProviderID); err != nil || proceed != next {
			return proceed, err
		}
	}
	return p.awaitNextAttempt(ctx)
}

// ensureUpToDate updates the instance to the spec. If the provider cannot update the instance in place,
// ensureUpToDate replaces the instance of the same Machine. Users need not know whether the provider can update in
// place. The instance of a preserved or interrupted Machine is not changed, unless its replacement has already begun.
func (p *pass) ensureUpToDate(ctx context.Context) (progress, error) {
	if m := p.machine; !m.IsReplacing() {
		switch {
		case preservation.IsPreserved(m):
			p.endDrain()
			return next, nil
		case machinestate.IsInterrupted(m):
			return next, nil // The instance will be reclaimed.
		case p.updateWaitsForPower():
			return next, nil
		}
	}
	if machinestate.IsPaused(p.machine) || p.unsupportedSchema(p.machine) != "" {
		p.suspendDrain()
	}
	if p.machine.IsReplacing() {
		if machinestate.IsPaused(p.machine) {
			return onMachine, nil
		}
		return p.replaceInstance(ctx)
	}
	u, err := p.plannedUpdate(ctx)
	if u == nil || err != nil {
		return onError.unless(err == nil), err
	}
	r := &removal{pass: p}
	outcome, err := p.updateInPlace(ctx, r, u)
	if err == nil && outcome == provider.UpdateNeedsDrain {
		if proceed, err := inOrder(ctx, r.findNode, r.drainNode); err != nil || proceed != next {
			return onError.unless(err == nil), err // The node is observed as usual during the drain.
		}
		if p.node == nil {
			// The next passes must repeat the same request.
			p.setCondition(v1beta1.ConditionDrained, true, v1beta1.ReasonSkipped, "The machine has no node.")
		}
		u.nodeDrained = true
		outcome, err = p.updateInPlace(ctx, r, u)
	}
	switch {
	case err != nil:
		return onError, err
	case outcome == provider.UpdateByAgent:
		return p.updateByAgent(ctx, r, u)
	case outcome == provider.UpdateNeedsReplacement:
		return p.replaceInstance(p.trace.beginPass(ctx))
	}
	return next, nil
}

// updateByAgent asks the agent on the drained Node for the update and follows its progress.
func (p *pass) updateByAgent(ctx context.Context, r *removal, u *update) (progress, error) {
	if !p.agentMayBeAsked(u) {
		return next, nil
	}
	if proceed, err := r.findNode(ctx); err != nil || proceed != next {
		return onError.unless(err == nil), err
	}
	if asks, err := p.followAgent(ctx, r, u); err != nil || !asks {
		return onError.unless(err == nil), err
	}
	if proceed, err := r.drainNode(ctx); err != nil || proceed != next {
		return onError.unless(err == nil), err // The node is observed as usual during the drain.
	}
	return p.askAgent(ctx)
}

// replaceInstance deletes the old instance, creates a new one and updates it. After a crash, all steps can be repeated,
// because each step checks what was already done.
func (p *pass) replaceInstance(ctx context.Context) (progress, error) {
	if p.machine.Spec.ProviderID != "" {
		r := &removal{pass: p}
		proceed, err := inOrder(ctx, r.findNode, r.drainNode, r.deleteInstance, r.deleteNode, p.forgetProviderID)
		if err != nil || proceed != next {
			return proceed, err
		}
	}
	if err := p.openNextInstance(ctx); err != nil {
		return onError, err
	}
	return inOrder(p.trace.beginPass(ctx), p.launchInstance, p.ensureUpToDate)
}

// ensureNode finds the Node of the instance and applies the node template to it.
func (p *pass) ensureNode(ctx context.Context) (progress, error) {
	if p.Target == nil {
		p.reportNoTarget()
		if p.failedInstance != nil {
			return p.handleFailedInstance(ctx, p.failedInstance)
		}
		return next, nil
	}
	found, err := p.findCandidate(ctx)
	switch {
	case err != nil:
		return onError, err
	case found.conflict != "":
		return p.refuseNode(found.conflict, found.belongsToOther), nil
	case found.otherID != nil:
		return p.refuseOtherID(found.otherID), nil
	case found.node != nil:
	case p.machine.Status.NodeRef != nil:
		return p.nodeGone(ctx)
	case p.failedInstance != nil:
		return p.handleFailedInstance(ctx, p.failedInstance)
	default:
		return p.awaitNode(ctx, found), nil
	}
	refused, contested, err := p.applyTemplate(ctx, found.node)
	if err != nil {
		return onError, err
	}
	return p.registerNode(ctx, found.node, refused, contested), nil
}

// handleInterruption records an announced interruption and drains the Node at once. There is no need to wait for the
// deletion of the Machine, because the pods must leave the Node in any case. A deletion continues the same drain.
func (p *pass) handleInterruption(ctx context.Context) (progress, error) {
	if drains, err := p.recordInterruption(ctx); err != nil || !drains {
		return onError.unless(err == nil), err
	}
	r := &removal{pass: p, interrupting: true}
	if _, err := r.drainNode(ctx); err != nil {
		return onError, err
	}
	return onNode.unless(p.node != nil), nil // The Node is gone, but still in the cache.
}

// inOrder runs steps until one of them must wait or fails.
func inOrder(ctx context.Context, steps ...func(context.Context) (progress, error)) (progress, error) {
	for _, step := range steps {
		if proceed, err := step(ctx); err != nil || proceed != next {
			return proceed, err
		}
	}
	return next, nil
}
