package machine

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// checkHealth sets the Machine's conditions from the conditions of the Node. Health checks use these conditions to
// decide whether the Machine is replaced.
func (p *pass) checkHealth(ctx context.Context) (progress, error) {
	power := p.machine.Status.Power
	if p.Target == nil && power != nil {
		return next, nil
	}
	if p.Target == nil {
		switch p.machine.Status.Instance.State {
		case v1beta1.InstanceRunning:
			p.markRunning()
		case v1beta1.InstanceStopped:
			p.reportStopped()
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
	if power != nil && power.Step != v1beta1.PowerStepBooting {
		return p.observeStopped(ctx, ready)
	}
	if !p.bootedAgain() {
		ready = nil
	}
	if ready != nil && ready.Status == corev1.ConditionTrue {
		gates := p.unmetReadinessGates()
		if gates == "" {
			p.setCondition(v1beta1.ConditionNodeHealthy, true, v1beta1.ReasonNodeReady, "")
		} else {
			p.setCondition(v1beta1.ConditionNodeHealthy, true, v1beta1.ReasonWaitingForReadinessGates, gates)
		}
		known := p.states.get(p.machine)
		if known.instance.isConfirmed || known.instance.suspectID != "" || !known.instance.missingSince.IsZero() {
			// A Ready Node proves that the instance runs, whatever the cloud answered before.
			p.states.update(p.machine, func(m *machineState) {
				m.instance.isConfirmed, m.instance.suspectID, m.instance.missingSince = false, "", time.Time{}
			})
		}
		if known.instance.isUnseen || p.machine.Status.Instance.State == v1beta1.InstancePending ||
			p.machine.Status.Instance.State == v1beta1.InstanceStopped {
			p.refreshInstance(ctx)
		}
		if gates != "" && !p.hasRun() {
			p.failAfterTimeout(nil)
			return next, nil
		}
		if !p.hasRun() || known.launch.token { // Another client may have written the phase.
			if err := p.dropToken(ctx); err != nil {
				return onError, err
			}
		}
		if err := p.endRebootWithNode(ctx); err != nil {
			return onError, err
		}
		p.endBoot()
		p.markRunning()
		return next, p.uncordonUnlessPreserved(ctx)
	}
	transition := p.reportUnhealthy(ready)
	p.failAfterTimeout(nil)
	// If a kubelet no longer reports, the most likely cause is that the instance is gone.
	_, err := p.confirmInstance(ctx, transition)
	p.reportUnhealthy(ready)
	return next, err
}

// reportUnhealthy reports why the Node is not Ready. It returns true if the reason has changed.
func (p *pass) reportUnhealthy(ready *corev1.NodeCondition) (transition bool) {
	reason, message := v1beta1.ReasonNodeUnresponsive, fmt.Sprintf("The kubelet of node %s does not report.", p.node.Name)
	switch {
	case p.machine.Status.Instance.State == v1beta1.InstanceStopped:
		reason, message = v1beta1.ReasonInstanceStopped, instanceStopped
	case ready != nil && ready.Status == corev1.ConditionFalse:
		reason, message = v1beta1.ReasonNodeNotReady, fmt.Sprintf("Node %s is not Ready: %s", p.node.Name, ready.Reason)
	}
	if transition = p.setCondition(v1beta1.ConditionNodeHealthy, false, reason, message); transition &&
		reason == v1beta1.ReasonInstanceStopped {
		p.warn(reason, "Check", message)
	}
	return transition
}

// instanceStopped is the message about an instance that was not stopped by Machinist.
const instanceStopped = "The instance is stopped in the cloud. Start the instance there, or delete the machine."

// reportStopped reports that an instance without a Node is stopped.
func (p *pass) reportStopped() {
	p.failAfterTimeout(nil)
	if p.machine.Status.Phase == v1beta1.MachineAvailable {
		p.machine.Status.Phase = v1beta1.MachineUnhealthy
		p.warn(v1beta1.ReasonInstanceStopped, "Check", instanceStopped)
	}
}

// unmetReadinessGates describes the conditions of spec.node.readinessGates that are not True on the Node. The result is
// empty if all are True.
func (p *pass) unmetReadinessGates() string {
	var unmet []string
	for _, gate := range p.machine.Spec.Node.ReadinessGates {
		status := nodeCondition(p.node, gate.ConditionType)
		switch status {
		case corev1.ConditionTrue:
			continue
		case "":
			status = "missing"
		}
		unmet = append(unmet, fmt.Sprintf("%s is %s", gate.ConditionType, status))
	}
	if len(unmet) == 0 {
		return ""
	}
	return fmt.Sprintf("Node %s is Ready, but these conditions are not True: %s.", p.node.Name, strings.Join(unmet, ", "))
}

// nodeCondition returns the status of a condition of a Node, or "" if the Node does not have the condition.
func nodeCondition(node *corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return node.Status.Conditions[i].Status
		}
	}
	return ""
}

func (p *pass) nodeGone(ctx context.Context) (progress, error) {
	ref := p.machine.Status.NodeRef
	live := &corev1.Node{}
	err := p.Target.LiveClient.Get(ctx, client.ObjectKey{Name: ref.Name}, live)
	if err == nil && live.UID == ref.UID {
		return p.after(time.Second), nil // The cache is outdated.
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return onError, fmt.Errorf("read node %s: %w", ref.Name, err)
	}
	message := fmt.Sprintf("Node %s was deleted from the target cluster.", ref.Name)
	changed := p.setCondition(v1beta1.ConditionRegistered, false, v1beta1.ReasonNodeGone, message)
	p.setCondition(v1beta1.ConditionNodeHealthy, false, v1beta1.ReasonNodeGone, message)
	p.failAfterTimeout(nil)
	if changed {
		p.warn(v1beta1.ReasonNodeGone, "Register", message)
	}
	_, err = p.confirmInstance(ctx, changed)
	return onMachine | onNode, err
}
