package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/bootstrap"
	"machinist.dev/machinist/pkg/provider"
)

// observe reports the Node's own conditions. Health checks decide whether the Machine is replaced for them.
func (p *pass) observe(ctx context.Context) (progress, error) {
	if p.Target == nil {
		if p.machine.Status.Instance.State == v1beta1.InstanceRunning {
			p.arrived()
		}
		return next, nil
	}
	if taint := p.startupTaint(); taint != "" && !p.hasRun() {
		p.setCondition(v1beta1.ConditionRegistered, true, v1beta1.ReasonWaitingForStartupTaints,
			fmt.Sprintf("Taint %s is still on node %s.", taint, p.node.Name))
		p.failAfterTimeout(nil)
		return next, nil
	}
	ready := readyCondition(p.node)
	var transition bool
	switch {
	case ready != nil && ready.Status == corev1.ConditionTrue:
		p.setCondition(v1beta1.ConditionNodeHealthy, true, v1beta1.ReasonNodeReady, "")
		known := p.states.get(p.machine)
		if known.instance.checked || known.instance.suspectID != "" || !known.instance.missingSince.IsZero() {
			// That it works says more than any read.
			p.states.update(p.machine, func(m *machineState) {
				m.instance.checked, m.instance.suspectID, m.instance.missingSince = false, "", time.Time{}
			})
		}
		if known.instance.incomplete || p.machine.Status.Instance.State == v1beta1.InstancePending {
			p.refreshInstance(ctx)
		}
		if !p.hasRun() {
			if err := p.dropToken(ctx); err != nil {
				return wait, err
			}
		}
		p.arrived()
		return next, p.uncordonUnlessPreserved(ctx)
	case ready != nil && ready.Status == corev1.ConditionFalse:
		transition = p.setCondition(v1beta1.ConditionNodeHealthy, false, v1beta1.ReasonNodeNotReady,
			fmt.Sprintf("Node %s is not Ready: %s", p.node.Name, ready.Reason))
	default:
		transition = p.setCondition(v1beta1.ConditionNodeHealthy, false, v1beta1.ReasonNodeUnresponsive,
			fmt.Sprintf("The kubelet of node %s does not report.", p.node.Name))
	}
	p.failAfterTimeout(nil)
	// The quickest explanation of a silent node is that its instance is gone.
	return next, p.checkInstance(ctx, transition)
}

// nodeGone deals with a Machine whose Node the cache no longer has.
func (p *pass) nodeGone(ctx context.Context) (progress, error) {
	ref := p.machine.Status.NodeRef
	live := &corev1.Node{}
	err := p.Target.Live.Get(ctx, client.ObjectKey{Name: ref.Name}, live)
	if err == nil && live.UID == ref.UID {
		p.requeueIn(time.Second) // The cache is late.
		return wait, nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return wait, fmt.Errorf("read node %s: %w", ref.Name, err)
	}
	message := fmt.Sprintf("Node %s was deleted from the target cluster.", ref.Name)
	changed := p.setCondition(v1beta1.ConditionRegistered, false, v1beta1.ReasonNodeGone, message)
	p.setCondition(v1beta1.ConditionNodeHealthy, false, v1beta1.ReasonNodeGone, message)
	p.failAfterTimeout(nil)
	if changed {
		p.warn(v1beta1.ReasonNodeGone, "Register", message)
	}
	return wait, p.checkInstance(ctx, changed)
}

// checkInstance asks the provider whether the instance of a Node in trouble is still there: at the transition into
// it, and again until it has answered, and as long as the instance is being removed. A process that began in the
// middle of it does not know, and asks.
func (p *pass) checkInstance(ctx context.Context, transition bool) error {
	if known := p.states.get(p.machine); known.instance.checked && !transition ||
		p.machine.Status.FailureReason == v1beta1.FailureInstanceVanished {
		return nil
	}
	inputs, err := p.Classes.ResolveForDeletion(ctx, p.machine)
	if err != nil {
		return fmt.Errorf("resolve the machine's class: %w", err)
	}
	instance, err := p.getInstance(ctx, inputs)
	switch {
	case provider.IsNotFound(err):
		if p.absent() {
			p.vanished() // The status remembers it, once it is written.
		}
	case err != nil:
		p.lookupFailed(err)
	default:
		p.machine.Status.Instance.State = stateOf(p.machine.Status.Instance, instance)
		// A preempted instance is followed to its end: its Node said so when it had hardly begun.
		going := instance.State == provider.StateTerminating
		if going {
			p.requeueIn(p.pollInterval())
		}
		p.states.update(p.machine, func(m *machineState) { m.instance.checked, m.instance.getFailures = !going, 0 })
		p.shown()
	}
	return nil
}

// refreshInstance completes what was not known when the instance was asked for. The Machine is usable without it, so
// it is tried once: that its node is Ready proves that it runs, whatever the provider says or fails to say. Only
// where the provider does not show the instance yet it is tried until that must be over: its addresses are needed for
// certificates.
func (p *pass) refreshInstance(ctx context.Context) {
	p.machine.Status.Instance.State = v1beta1.InstanceRunning
	inputs, err := p.Classes.ResolveForDeletion(ctx, p.machine)
	if err != nil {
		return
	}
	instance, err := p.getInstance(ctx, inputs)
	left := p.showsWithin()
	incomplete := provider.IsNotFound(err) && left > 0
	p.states.update(p.machine, func(m *machineState) { m.instance.incomplete = incomplete })
	if incomplete {
		p.requeueIn(min(left, p.pollInterval()))
	}
	if err != nil {
		return
	}
	p.machine.Status.Addresses = instance.Addresses
	if instance.State != provider.StatePending {
		p.machine.Status.Instance.State = v1beta1.InstanceState(instance.State)
	}
}

// startupTaint returns the first startup taint that is still on the Node. One that was on a Node in service belongs
// to another component and may stay.
func (p *pass) startupTaint() string {
	if applied, _ := p.appliedTo(p.node); applied.InService {
		return ""
	}
	for _, t := range p.machine.Spec.Node.StartupTaints {
		if find(p.node.Spec.Taints, t) >= 0 {
			return t.Key
		}
	}
	return ""
}

// dropToken deletes the bootstrap token once the machine has joined, or is gone. It is asked for at the transition
// only, and before that is written, so that a crash in between does not leave the token.
func (p *pass) dropToken(ctx context.Context) error {
	known := p.states.get(p.machine)
	if !known.launch.ownToken || known.launch.token {
		err := p.tokens.Delete(ctx, p.attempt())
		// Who may not read tokens has none to delete, unless it made one and lost the right since.
		if err != nil && (known.launch.token || !errors.Is(err, bootstrap.ErrMayNotRead)) {
			return err
		}
	}
	p.states.update(p.machine, func(m *machineState) { m.launch.ownToken, m.launch.token = false, false })
	return nil
}
