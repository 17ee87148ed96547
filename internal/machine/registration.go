package machine

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/index"
)

// registrationGrace is how long a Node may be unready after it appeared before the status says that it registered. Most
// become Ready within it, and then registration and readiness are one write instead of two.
const registrationGrace = 30 * time.Second

// register pairs the Machine with its Node and applies the node template.
func (p *pass) register(ctx context.Context) (progress, error) {
	if p.Target == nil {
		return p.withoutTarget()
	}
	found, err := p.findNode(ctx)
	node := found.node
	switch {
	case err != nil:
		return wait, err
	case found.conflict != "":
		return p.refuseNode(found.conflict, found.belongsToOther)
	case node == nil && p.machine.Status.NodeRef != nil:
		return p.nodeGone(ctx)
	case node == nil:
		p.awaitNode(found)
		return wait, nil
	}
	refused, err := p.applyTemplate(ctx, node)
	if err != nil {
		return wait, err
	}
	if refused != "" && p.machine.Status.NodeRef == nil {
		// Without its labels and taints it would take pods that are not meant for it.
		if p.setCondition(v1beta1.ConditionRegistered, false, v1beta1.ReasonInvalidConfiguration, refused) {
			p.warn(v1beta1.ReasonInvalidConfiguration, "Register", refused)
		}
		p.failAfterTimeout(nil)
		return wait, nil
	}
	p.node = node
	if !p.isTrue(v1beta1.ConditionRegistered) && !nodeReady(node) {
		if left := node.CreationTimestamp.Add(registrationGrace).Sub(p.now); left > 0 {
			p.requeueIn(left)
			p.failAfterTimeout(nil)
			return wait, nil
		}
	}
	p.machine.Status.NodeRef = &v1beta1.NodeRef{Name: node.Name, UID: node.UID}
	p.keepApplied()
	p.machine.Status.Version = bounded(node.Status.NodeInfo.KubeletVersion, 128)
	if refused == "" {
		p.setCondition(v1beta1.ConditionRegistered, true, v1beta1.ReasonNodeRegistered, "")
	} else if p.setCondition(v1beta1.ConditionRegistered, true, v1beta1.ReasonInvalidConfiguration, refused) {
		// A node that runs does not suffer from a change that cannot be made.
		p.warn(v1beta1.ReasonInvalidConfiguration, "Register", refused)
	}
	return next, nil
}

// refuseNode reports that a Node may not become the Machine's. A conflicting Node is reported already.
func (p *pass) refuseNode(conflict string, other bool) (progress, error) {
	if p.setCondition(v1beta1.ConditionRegistered, false, v1beta1.ReasonNodeConflict, conflict) && !other {
		p.warn(v1beta1.ReasonNodeConflict, "Register", conflict)
	}
	p.failAfterTimeout(nil)
	return wait, nil
}

// awaitNode says what the Machine without a Node waits for. What a Node lacks it may get a moment later.
func (p *pass) awaitNode(s candidate) {
	message := fmt.Sprintf("No node with the provider ID %s has registered.", p.machine.Spec.ProviderID)
	if s.unproven != "" {
		if left := s.since.Add(registrationGrace).Sub(p.now); left > 0 {
			p.requeueIn(left)
		} else {
			message = s.unproven
		}
	}
	p.setCondition(v1beta1.ConditionRegistered, false, v1beta1.ReasonWaitingForNode, message)
	p.failAfterTimeout(nil)
}

// withoutTarget ends the life of a Machine that is no Node at "Available".
func (p *pass) withoutTarget() (progress, error) {
	p.setCondition(v1beta1.ConditionRegistered, false, v1beta1.ReasonNoTargetCluster,
		"There is no target cluster to register in.")
	if p.machine.Status.Instance.State != v1beta1.InstanceRunning {
		p.failAfterTimeout(nil)
	}
	return next, nil
}

// findNode returns the Machine's Node: the one it is paired with while that exists, else the one with its provider ID,
// else one of its name that has none and is proven to be its.
func (p *pass) findNode(ctx context.Context) (candidate, error) {
	if ref := p.machine.Status.NodeRef; ref != nil {
		paired := &corev1.Node{}
		err := p.Target.Nodes.Get(ctx, client.ObjectKey{Name: ref.Name}, paired)
		// That it is written down is no proof. A provider ID that a Node has never changes.
		if err == nil && paired.UID == ref.UID && paired.Spec.ProviderID == p.machine.Spec.ProviderID {
			return candidate{node: paired.DeepCopy()}, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return candidate{}, fmt.Errorf("read node %s: %w", ref.Name, err)
		}
	}
	nodes, err := index.Shared[corev1.Node](ctx, p.Target.Nodes, &corev1.NodeList{},
		client.MatchingFields{index.NodeByProviderID: p.machine.Spec.ProviderID})
	if err != nil {
		return candidate{}, fmt.Errorf("find the node with the provider ID %s: %w", p.machine.Spec.ProviderID, err)
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
			return candidate{conflict: p.conflictMessage(conflicting[0]), belongsToOther: true}, nil
		}
		return p.findNodeByName(ctx)
	case 1:
	default:
		return candidate{
			conflict: fmt.Sprintf("Nodes %s and %s both have the provider ID %s.", nodes[0].Name, nodes[1].Name,
				p.machine.Spec.ProviderID),
			claimants: nodes,
		}, nil
	}
	machines, err := index.Shared[v1beta1.Machine](ctx, p.Client, &v1beta1.MachineList{},
		client.MatchingFields{index.MachineByProviderID: p.machine.Spec.ProviderID})
	if err != nil {
		return candidate{}, fmt.Errorf("find the machines with the provider ID %s: %w", p.machine.Spec.ProviderID, err)
	}
	for _, other := range machines {
		paired := other.Status.NodeRef != nil && other.Status.NodeRef.UID == nodes[0].UID
		if other.UID != p.machine.UID && (paired || older(other, p.machine)) {
			return candidate{conflict: fmt.Sprintf("Node %s belongs to machine %s, which has the same provider ID and was first.", nodes[0].Name, client.ObjectKeyFromObject(other))}, nil
		}
	}
	return candidate{node: nodes[0].DeepCopy()}, nil
}

func older(a, b *v1beta1.Machine) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

// applyTemplate applies the node template to the Node in one patch, if it has to. It returns why the API server
// refuses that, as it does with labels that are none.
func (p *pass) applyTemplate(ctx context.Context, node *corev1.Node) (refused string, err error) {
	if paused(p.machine) || unsupportedSchema(p.machine) != "" {
		return "", nil
	}
	if refused := reservedKeys(p.machine); refused != "" {
		return refused, nil
	}
	for attempt := 0; ; attempt++ {
		applied, known := p.appliedTo(node)
		inService := applied.InService || !known && p.inService(node)
		next := templateOf(p.machine, node, inService)
		withTemplate, err := withTemplate(node, p.machine, applied, known, inService)
		if err != nil {
			return "", err
		}
		if withTemplate == nil {
			p.noteApplied(&next)
			return "", nil
		}
		var patch client.Patch
		if attempt == 0 {
			if patch, err = templatePatch(node, withTemplate); err != nil {
				return "", err
			}
		}
		tested := patch != nil
		if !tested {
			// One that replaces the list of taints must not be blind.
			patch = client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
		}
		err = p.Target.Nodes.Patch(ctx, withTemplate, patch)
		invalid := apierrors.IsInvalid(err)
		switch {
		case err == nil:
			*node = *withTemplate
			p.noteApplied(&next)
			return "", nil
		case invalid && !tested:
			return fmt.Sprintf("Node %s cannot carry what spec.node asks for: %s", node.Name, err), nil
		case attempt > 0 || !invalid && !apierrors.IsConflict(err):
			return "", fmt.Errorf("patch node %s: %w", node.Name, err)
		}
		// Others write to a Node that has just registered. Once more from what is there now, instead of waiting for the
		// cache.
		fresh := &corev1.Node{}
		if err := p.Target.Live.Get(ctx, client.ObjectKeyFromObject(node), fresh); err != nil {
			return "", fmt.Errorf("read node %s: %w", node.Name, err)
		}
		if fresh.UID != node.UID || fresh.Spec.ProviderID != node.Spec.ProviderID {
			// It may be another machine's Node now.
			return "", fmt.Errorf("patch node %s: %w", node.Name, err)
		}
		*node = *fresh
	}
}

func nodeReady(node *corev1.Node) bool {
	c := readyCondition(node)
	return c != nil && c.Status == corev1.ConditionTrue
}

// readyCondition returns the Node's condition Ready, nil when its kubelet has not said anything yet.
func readyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
