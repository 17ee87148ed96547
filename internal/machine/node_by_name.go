package machine

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr"
	"machinist.dev/machinist/internal/platform/index"
)

// taintCloudProvider is on a Node until a cloud-controller-manager has set the Node's provider ID.
const taintCloudProvider = "node.cloudprovider.kubernetes.io/uninitialized"

// candidate is the result of a search for the Machine's Node.
type candidate struct {
	// node is the Machine's Node.
	node *corev1.Node
	// conflict explains why a Node is permanently not accepted. belongsToOther is true if it is another Machine's Node.
	conflict       string
	belongsToOther bool
	// claimants are the Nodes that all have the Machine's provider ID, if that is the conflict.
	claimants []*corev1.Node
	// unproven explains why a Node with the Machine's name and without a provider ID is not accepted yet. since is when
	// that Node was created.
	unproven string
	since    time.Time
	// otherID is a Node that joined with the Machine's bootstrap token but has another provider ID than the Machine.
	otherID *corev1.Node
}

// unproven returns a candidate that leaves the Node alone until more is known about it.
func unproven(node *corev1.Node, format string, args ...any) candidate {
	return candidate{unproven: fmt.Sprintf(format, args...), since: node.CreationTimestamp.Time}
}

// claim has all facts that decide whether a Node without a provider ID belongs to a Machine.
type claim struct {
	machine *v1beta1.Machine
	node    *corev1.Node
	// otherMachines are the other Machines that have, or expect, the Node of that name, and may own it.
	otherMachines []v1beta1.Machine
	// attempt is the current attempt, and tokenID the ID of its bootstrap token, or "" if it can have none.
	attempt bootstrap.Attempt
	tokenID string
	// joins are the client certificates for the Node's name that were issued to bearers of bootstrap tokens.
	joins []kubeletcsr.Joined
}

// findNodeByName looks for a Node that has the name under which the Machine's instance registers, and no provider ID.
// Some kubelets register in this way, without a cloud-controller-manager that sets the ID later.
func (s *registrationStep) findNodeByName(ctx context.Context) (candidate, error) {
	name := index.NodeName(s.machine)
	if name == "" {
		return candidate{}, nil
	}
	node := &corev1.Node{}
	switch err := s.Target.Nodes.Get(ctx, client.ObjectKey{Name: name}, node); {
	case apierrors.IsNotFound(err):
		return candidate{}, nil
	case err != nil:
		return candidate{}, fmt.Errorf("read node %s: %w", name, err)
	case node.Spec.ProviderID == "" && s.machine.DeletionTimestamp.IsZero() && tainted(node, taintCloudProvider):
		return unproven(node, "Waiting for the cloud-controller-manager to set the provider ID of node %s.", name), nil
	}
	return s.decideByName(ctx, node.DeepCopy())
}

// decideByName decides whether a Node with the Machine's name belongs to the Machine.
func (s *registrationStep) decideByName(ctx context.Context, node *corev1.Node) (candidate, error) {
	c := claim{machine: s.machine, node: node, attempt: s.launch.attempt()}
	if found, decided := c.withoutProof(); decided {
		return found, nil
	}
	if node.Spec.ProviderID != "" {
		return s.decideOtherID(ctx, c)
	}
	machines := &v1beta1.MachineList{}
	if err := s.Client.List(ctx, machines, client.MatchingFields{index.MachineByNodeName: node.Name}); err != nil {
		return candidate{}, fmt.Errorf("find the machines of node %s: %w", node.Name, err)
	}
	c.otherMachines = slices.DeleteFunc(machines.Items, func(m v1beta1.Machine) bool {
		return m.UID == s.machine.UID || !s.mayOwn(&m, node)
	})
	if found, decided := c.byFormerNode(); decided {
		if found.node != nil {
			if named, err := s.namedByProvider(ctx, node.Name); err != nil || !named {
				return unproven(node, "Node %s has no provider ID, and the provider does not report that this machine's instance registers under that name.",
					node.Name), err
			}
		}
		return found, nil
	}
	switch err := s.readJoins(ctx, &c); {
	case apierrors.IsForbidden(err): // A process that may not read tokens has created none.
		return unproven(node, "Node %s has no provider ID, and the bootstrap token that it joined with cannot be read: %s",
			node.Name, err), nil
	case err != nil:
		return candidate{}, fmt.Errorf("find the bootstrap tokens that node %s joined with: %w", node.Name, err)
	}
	return c.byToken(), nil
}

// readJoins reads with which bootstrap tokens the Node joined.
func (s *registrationStep) readJoins(ctx context.Context, c *claim) (err error) {
	if c.tokenID, err = s.tokens.ID(ctx, c.attempt); err == nil {
		c.joins, err = s.joins.Of(ctx, c.node.Name)
	}
	return err
}

// withoutProof decides the cases in which a proof would not help.
func (c claim) withoutProof() (s candidate, decided bool) {
	switch {
	case c.node.Spec.ProviderID != "" && c.node.CreationTimestamp.Before(&c.machine.CreationTimestamp):
		return candidate{}, true // The Node belongs to another instance that had the name before.
	case c.machine.Spec.ProviderID == "":
		return candidate{}, true // The Machine has no instance that could have registered the Node.
	case c.node.Status.NodeInfo.KubeletVersion == "":
		return unproven(c.node, "Node %s exists, but no kubelet reports its status.", c.node.Name), true
	}
	return candidate{}, false
}

// byFormerNode decides by the Machines that have, or had, the Node of that name.
func (c claim) byFormerNode() (s candidate, decided bool) {
	for i := range c.otherMachines {
		if ref := c.otherMachines[i].Status.NodeRef; ref != nil && ref.UID == c.node.UID {
			return candidate{conflict: fmt.Sprintf("Node %s belongs to machine %s.", c.node.Name,
				client.ObjectKeyFromObject(&c.otherMachines[i]))}, true
		}
	}
	// A kubelet keeps its certificate, and registers again under its name when its Node was deleted. For a Machine that
	// is being deleted this does not hold: the Node may be gone with the instance, and another instance may have the
	// name.
	if ref := c.machine.Status.NodeRef; ref != nil && ref.Name == c.node.Name && len(c.otherMachines) == 0 &&
		c.machine.DeletionTimestamp.IsZero() {
		return candidate{node: c.node}, true
	}
	return candidate{}, false
}

// byToken decides by the certificates that were issued for the Node's name. One must have been issued to the bearer of
// the current attempt's token before the Node was created: an older Node was created by another instance.
func (c claim) byToken() candidate {
	var ours time.Time
	other := ""
	for _, j := range c.joins {
		switch {
		case c.tokenID != "" && j.TokenID == c.tokenID:
			if ours.IsZero() || j.At.Before(ours) {
				ours = j.At
			}
		case c.attempt.Follows(j.TokenID):
			// The instance of that attempt is gone.
		case !j.At.Before(c.machine.CreationTimestamp.Time):
			other = j.TokenID // Certificates from before the Machine's creation belong to an instance that is gone.
		}
	}
	switch name, id := c.node.Name, c.machine.NodeProviderID(); {
	case ours.IsZero():
		return unproven(c.node, "Node %s has no provider ID, and the cluster has no record of a certificate for it that was issued "+
			"for this machine's bootstrap token. Either the user data has no token, or the node joined more than an hour ago, or "+
			"it is not this machine's node. If it is this machine's node, set its provider ID to %s.", name, id)
	case other != "":
		return candidate{conflict: fmt.Sprintf("Node %s has no provider ID, and certificates for it were issued both for this "+
			"machine's bootstrap token and for token %s.", name, other)}
	case c.node.CreationTimestamp.Time.Before(ours):
		return candidate{conflict: fmt.Sprintf("Node %s has no provider ID, and existed before this machine joined.", name)}
	}
	return candidate{node: c.node}
}

func tainted(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}
