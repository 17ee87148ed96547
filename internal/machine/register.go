package machine

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/nodemark"
	"machinist.dev/machinist/internal/platform/wording"
)

// registrationGrace is how long a new Node may be not Ready before the status reports its registration. Most Nodes
// become Ready within this time, so that one write can report both the registration and the readiness.
const registrationGrace = 30 * time.Second

// registerNode records the Node and the result of the node template in the status. The messages about refused and
// contested keys come from applyTemplate.
func (p *pass) registerNode(ctx context.Context, node *corev1.Node, refused, contested string) progress {
	if refused != "" && p.machine.Status.NodeRef == nil {
		// Without the labels and taints of the template, the Node would accept pods that must not run on it.
		p.reportProblem(v1beta1.ConditionRegistered, false, v1beta1.ReasonInvalidConfiguration, "Register", refused)
		p.failAfterTimeout(nil)
		return onMachine | onNode
	}
	p.node = node
	if !p.isTrue(v1beta1.ConditionRegistered) && !nodeReady(node) {
		if left := node.CreationTimestamp.Add(registrationGrace).Sub(p.now); left > 0 {
			p.failAfterTimeout(nil)
			return onNode | p.after(left)
		}
	}
	if p.machine.Status.NodeRef == nil {
		p.readAddresses(ctx)
	}
	p.machine.Status.NodeRef = &v1beta1.NodeRef{Name: node.Name, UID: node.UID}
	if in := p.machine.Status.Instance; in != nil && in.NodeName != "" {
		in.NodeName = node.Name // Another client wrote another name. A Node with that name was not accepted.
	}
	p.keepApplied()
	p.machine.Status.Version = wording.Truncate(node.Status.NodeInfo.KubeletVersion, 128)
	reason, problem := v1beta1.ReasonNodeRegistered, ""
	switch {
	case refused != "": // If the template cannot be applied to a node that already runs pods, the node stays in service.
		reason, problem = v1beta1.ReasonInvalidConfiguration, refused
	case contested != "":
		reason, problem = v1beta1.ReasonNodeTemplateContested, contested
	}
	if p.setCondition(v1beta1.ConditionRegistered, true, reason, problem) && problem != "" {
		p.warn(reason, "Register", problem)
	}
	return next
}

// refuseNode reports that a Node is not accepted as the Machine's Node. If the Node belongs to another Machine (other
// is true), an event has already reported this.
func (p *pass) refuseNode(conflict string, other bool) progress {
	if p.setCondition(v1beta1.ConditionRegistered, false, v1beta1.ReasonNodeConflict, conflict) && !other {
		p.warn(v1beta1.ReasonNodeConflict, "Register", conflict)
	}
	p.failAfterTimeout(nil)
	return onMachine | onOtherMachine | onNode
}

// awaitNode reports what a Machine without a Node waits for. A Node without proof is reported only after
// registrationGrace.
func (p *pass) awaitNode(ctx context.Context, found candidate) progress {
	message := fmt.Sprintf("No node with the provider ID %s has registered.", p.machine.NodeProviderID())
	if found.unprovenReason != "" {
		if left := found.since.Add(registrationGrace).Sub(p.now); left > 0 {
			p.requeueIn(left)
		} else {
			message = found.unprovenReason
		}
	} else if progress := p.joinProgress(ctx); progress != "" {
		message += " " + progress
	}
	p.setCondition(v1beta1.ConditionRegistered, false, v1beta1.ReasonWaitingForNode, message)
	p.failAfterTimeout(nil)
	return onMachine | onNode
}

// reportNoTarget handles a Machine without a target cluster. Available is the final phase of such a Machine.
func (p *pass) reportNoTarget() {
	p.setCondition(v1beta1.ConditionRegistered, false, v1beta1.ReasonNoTargetCluster,
		"There is no target cluster in which a node could register.")
	if p.failedInstance == nil && p.machine.Status.Instance.State != v1beta1.InstanceRunning {
		p.failAfterTimeout(nil)
	}
}

// findCandidate returns the Machine's Node. findCandidate prefers the Node of status.nodeRef. Otherwise,
// findCandidate returns the Node with the Machine's provider ID. A Node with the Machine's name and no provider ID
// must be proven to belong to the Machine.
func (p *pass) findCandidate(ctx context.Context) (found candidate, err error) {
	ref := p.machine.Status.NodeRef
	defer func() {
		// Keep the reference if the provider has confirmed the Node, or if the provider could not be asked.
		if err != nil || ref != nil && found.node != nil && found.node.UID == ref.UID {
			p.machine.Status.NodeRef = ref
		}
	}()
	if ref != nil {
		paired := &corev1.Node{}
		err := p.Target.Nodes.Get(ctx, client.ObjectKey{Name: ref.Name}, paired)
		if err == nil && paired.UID == ref.UID && p.isMarked(paired) {
			return candidate{node: paired.DeepCopy()}, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return candidate{}, fmt.Errorf("read node %s: %w", ref.Name, err)
		}
		if err == nil && paired.UID == ref.UID && paired.Spec.ProviderID != "" {
			p.machine.Status.NodeRef = nil // Another client may have written the reference.
		}
	}
	id := p.machine.NodeProviderID()
	nodes, err := index.ListShared[corev1.Node](ctx, p.Target.Nodes, &corev1.NodeList{},
		client.MatchingFields{index.NodeByProviderID: id})
	if err != nil {
		return candidate{}, fmt.Errorf("find the node with the provider ID %s: %w", id, err)
	}
	nodes, conflicting, err := p.splitConflicting(ctx, nodes)
	if err == nil {
		err = p.reportConflicts(ctx, conflicting)
	}
	if err != nil {
		return candidate{}, err
	}
	switch len(nodes) {
	case 0:
		if len(conflicting) > 0 {
			return candidate{conflict: conflicting[0].reason, belongsToOther: true}, nil
		}
		return p.findNodeByName(ctx)
	case 1:
	default:
		return candidate{
			conflict:  fmt.Sprintf("Nodes %s and %s both have the provider ID %s.", nodes[0].Name, nodes[1].Name, id),
			claimants: nodes,
		}, nil
	}
	machines, err := index.ListShared[v1beta1.Machine](ctx, p.Client, &v1beta1.MachineList{},
		client.MatchingFields{index.MachineByProviderID: id})
	if err != nil {
		return candidate{}, fmt.Errorf("find the machines with the provider ID %s: %w", id, err)
	}
	for _, other := range machines {
		if other.UID == p.machine.UID || !mayOwn(p.machine, other, nodes[0]) {
			continue
		}
		paired := other.Status.NodeRef != nil && other.Status.NodeRef.UID == nodes[0].UID
		if paired || older(other, p.machine) {
			return candidate{conflict: fmt.Sprintf("Node %s belongs to machine %s, which has the same provider ID and is older.", nodes[0].Name, client.ObjectKeyFromObject(other))}, nil
		}
	}
	return candidate{node: nodes[0].DeepCopy()}, nil
}

// mayOwn reports whether a Node may belong to another Machine. For Machines in other namespaces, only the Machine's
// spec and the mark on the Node count. Otherwise, a client that may write the status of Machines there could claim all
// Nodes.
func mayOwn(m, other *v1beta1.Machine, node *corev1.Node) bool {
	id := other.Spec.ProviderID
	return other.Namespace == m.Namespace || id == m.Spec.ProviderID || id != "" && id == node.Spec.ProviderID ||
		nodemark.Proves(other, node)
}

func older(a, b *v1beta1.Machine) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

func nodeReady(node *corev1.Node) bool {
	c := readyCondition(node)
	return c != nil && c.Status == corev1.ConditionTrue
}

// readyCondition returns the Node's condition Ready. It returns nil if the kubelet has not written its status yet.
func readyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
