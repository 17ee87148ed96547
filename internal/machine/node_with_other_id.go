package machine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/wording"
)

// A cloud controller of a distribution may give a Node a provider ID of another form, such as k3s://NAME. The Machine
// cannot accept such a Node: the ID is all that ties a Node to its instance later. But a Node that has the Machine's
// name and joined with its bootstrap token is the Machine's, with the pods on it. So it is reported, and it is drained
// and deleted with the Machine.

// judgeOtherID decides about a Node that has the Machine's name and another provider ID.
func (s *registrationStep) judgeOtherID(ctx context.Context, c claim) (candidate, error) {
	known := s.states.get(s.machine).registration.otherID == c.node.UID
	if known {
		return candidate{otherID: c.node}, nil
	}
	machines := &v1beta1.MachineList{}
	err := s.Client.List(ctx, machines, client.MatchingFields{index.MachineByProviderID: c.node.Spec.ProviderID})
	switch {
	case err != nil:
		return candidate{}, fmt.Errorf("find the machines with the provider ID of node %s: %w", c.node.Name, err)
	case len(machines.Items) > 0:
		return candidate{}, nil // It is the Node of that machine.
	}
	err = s.readJoins(ctx, &c)
	if apierrors.IsForbidden(err) { // A process that may not read tokens has created none.
		return unproven(c.node, "%s", otherIDMessage(s.machine, c.node)), nil
	}
	if err != nil {
		return candidate{}, fmt.Errorf("find out who joined as node %s: %w", c.node.Name, err)
	}
	if found := c.byToken(); found.node == nil {
		return unproven(c.node, "%s", otherIDMessage(s.machine, c.node)), nil
	}
	s.states.update(s.machine, func(m *machineState) { m.registration.otherID = c.node.UID })
	return candidate{otherID: c.node}, nil
}

// refuseOtherID reports the Machine's Node that has another provider ID.
func (s *registrationStep) refuseOtherID(node *corev1.Node) (progress, error) {
	return s.refuseNode(otherIDMessage(s.machine, node)+" The node joined with the machine's bootstrap token: it is drained "+
		"and deleted with the machine.", false)
}

func otherIDMessage(m *v1beta1.Machine, node *corev1.Node) string {
	return fmt.Sprintf("Node %s has the provider ID %s, and %s is expected. If all nodes have IDs of this form, set "+
		"spec.nodeProviderID of the class. Otherwise have the kubelet or the cloud controller set the expected ID: it cannot be "+
		"changed once a node has one.", node.Name, wording.Truncate(node.Spec.ProviderID, 256), wording.Truncate(m.NodeProviderID(), 256))
}
