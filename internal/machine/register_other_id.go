package machine

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/wording"
)

// The cloud controller of a distribution may set a provider ID of another form, such as k3s://NAME. The Machine cannot
// accept such a Node, because later only the provider ID shows to which instance a Node belongs. If the Node has joined
// with the Machine's bootstrap token, the Node and its pods still belong to the Machine. The Node is therefore
// reported, and is drained and deleted with the Machine.

// decideOtherID determines whether a Node with the Machine's name belongs to the Machine although it has another
// provider ID.
func (p *pass) decideOtherID(ctx context.Context, c claim) (candidate, error) {
	known := p.states.get(p.machine).registration.otherID == c.node.UID
	if known {
		return candidate{otherID: c.node}, nil
	}
	machines, err := index.ListShared[v1beta1.Machine](ctx, p.Client, &v1beta1.MachineList{},
		client.MatchingFields{index.MachineByProviderID: c.node.Spec.ProviderID})
	switch {
	case err != nil:
		return candidate{}, fmt.Errorf("find the machines with the provider ID of node %s: %w", c.node.Name, err)
	case slices.ContainsFunc(machines, func(m *v1beta1.Machine) bool { return mayOwn(p.machine, m, c.node) }):
		return candidate{}, nil // The Node belongs to that machine.
	}
	err = p.readJoins(ctx, &c)
	if apierrors.IsForbidden(err) { // A process that may not read tokens has created none.
		return unprovenCandidate(c.node, "%s", otherIDMessage(p.machine, c.node)), nil
	}
	if err != nil {
		return candidate{}, fmt.Errorf("find the bootstrap tokens that node %s joined with: %w", c.node.Name, err)
	}
	if found := c.byToken(); found.node == nil {
		return unprovenCandidate(c.node, "%s", otherIDMessage(p.machine, c.node)), nil
	}
	p.states.update(p.machine, func(m *machineState) { m.registration.otherID = c.node.UID })
	return candidate{otherID: c.node}, nil
}

func (p *pass) refuseOtherID(node *corev1.Node) progress {
	return p.refuseNode(otherIDMessage(p.machine, node)+" The node joined with the machine's bootstrap token, so it will be "+
		"drained and deleted with the machine.", false)
}

func otherIDMessage(m *v1beta1.Machine, node *corev1.Node) string {
	return fmt.Sprintf("Node %s has provider ID %s instead of the expected %s. If all nodes have IDs of this form, set "+
		"spec.nodeProviderID of the class. Otherwise configure the kubelet or the cloud controller to set the expected ID, "+
		"and replace the machine: the provider ID of a node cannot change.",
		node.Name, wording.Truncate(node.Spec.ProviderID, 256), wording.Truncate(m.NodeProviderID(), 256))
}
