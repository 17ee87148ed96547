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

// taintCloudProvider is on a Node until a cloud-controller-manager has said what instance it is.
const taintCloudProvider = "node.cloudprovider.kubernetes.io/uninitialized"

// candidate is the result of a search for the Machine's Node.
type candidate struct {
	// node is the Machine's Node.
	node *corev1.Node
	// conflict says why a Node is not accepted, for good. belongsToOther is true if it is another Machine's Node.
	conflict       string
	belongsToOther bool
	// claimants are the Nodes that all have the Machine's provider ID, if that is the conflict.
	claimants []*corev1.Node
	// unproven says why a Node with the Machine's name and without a provider ID is not accepted as it is, and since is
	// when that Node was made.
	unproven string
	since    time.Time
	// otherID is a Node that joined with the Machine's bootstrap token, and has another provider ID than the Machine.
	otherID *corev1.Node
}

// unproven leaves a Node alone until more is known of it.
func unproven(node *corev1.Node, format string, args ...any) candidate {
	return candidate{unproven: fmt.Sprintf(format, args...), since: node.CreationTimestamp.Time}
}

// claim has all facts that decide whether a Node without a provider ID is a Machine's.
type claim struct {
	machine *v1beta1.Machine
	node    *corev1.Node
	// otherMachines are those that have the Node of that name, or expect it.
	otherMachines []v1beta1.Machine
	// attempt is the current one, and tokenID that of its bootstrap token; empty if it can have none.
	attempt bootstrap.Attempt
	tokenID string
	// joins are the client certificates that were issued for the name to bearers of bootstrap tokens.
	joins []kubeletcsr.Joined
}

// findNodeByName looks for a Node that has the name under which the Machine's instance registers and no provider ID, as
// some kubelets register where no cloud-controller-manager follows.
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
		return unproven(node, "Node %s waits for the cloud-controller-manager to tell its provider ID.", name), nil
	}
	return s.judgeByName(ctx, node.DeepCopy())
}

// judgeByName decides about a Node that has the Machine's name.
func (s *registrationStep) judgeByName(ctx context.Context, node *corev1.Node) (candidate, error) {
	c := claim{machine: s.machine, node: node, attempt: s.launch.attempt()}
	if found, decided := c.withoutProof(); decided {
		return found, nil
	}
	if node.Spec.ProviderID != "" {
		return s.judgeOtherID(ctx, c)
	}
	machines := &v1beta1.MachineList{}
	if err := s.Client.List(ctx, machines, client.MatchingFields{index.MachineByNodeName: node.Name}); err != nil {
		return candidate{}, fmt.Errorf("find the machines of node %s: %w", node.Name, err)
	}
	c.otherMachines = slices.DeleteFunc(machines.Items, func(m v1beta1.Machine) bool { return m.UID == s.machine.UID })
	if found, decided := c.byFormerNode(); decided {
		if found.node != nil {
			if named, err := s.namedByProvider(ctx, node.Name); err != nil || !named {
				return unproven(node, "Node %s has no provider ID, and the provider does not say that it is this machine.",
					node.Name), err
			}
		}
		return found, nil
	}
	switch err := s.readJoins(ctx, &c); {
	case apierrors.IsForbidden(err): // Who may not read tokens has made none.
		return unproven(node, "Node %s has no provider ID, and who joined as it cannot be read: %s", node.Name, err), nil
	case err != nil:
		return candidate{}, fmt.Errorf("find out who joined as node %s: %w", node.Name, err)
	}
	return c.byToken(), nil
}

// readJoins finds out who joined as the Node.
func (s *registrationStep) readJoins(ctx context.Context, c *claim) (err error) {
	if c.tokenID, err = s.tokens.ID(ctx, c.attempt); err == nil {
		c.joins, err = s.joins.Of(ctx, c.node.Name)
	}
	return err
}

// withoutProof decides where no proof would help.
func (c claim) withoutProof() (s candidate, decided bool) {
	switch {
	case c.node.Spec.ProviderID != "" && c.node.CreationTimestamp.Before(&c.machine.CreationTimestamp):
		return candidate{}, true // It is the Node of another instance that had the name before.
	case c.machine.Spec.ProviderID == "":
		return candidate{}, true // The Machine has no instance that it could be.
	case c.node.Status.NodeInfo.KubeletVersion == "":
		return unproven(c.node, "Node %s exists, and no kubelet reports for it.", c.node.Name), true
	}
	return candidate{}, false
}

// byFormerNode decides by what Machines were or are the Node of that name.
func (c claim) byFormerNode() (s candidate, decided bool) {
	for i := range c.otherMachines {
		if ref := c.otherMachines[i].Status.NodeRef; ref != nil && ref.UID == c.node.UID {
			return candidate{conflict: fmt.Sprintf("Node %s is that of machine %s.", c.node.Name,
				client.ObjectKeyFromObject(&c.otherMachines[i]))}, true
		}
	}
	// A kubelet keeps its certificate, and registers under its name again when its Node was deleted. In a Machine that is
	// being deleted the Node may have gone with the instance, and the name be another's.
	if ref := c.machine.Status.NodeRef; ref != nil && ref.Name == c.node.Name && len(c.otherMachines) == 0 &&
		c.machine.DeletionTimestamp.IsZero() {
		return candidate{node: c.node}, true
	}
	return candidate{}, false
}

// byToken decides by who has the certificate of a node of that name. It must be the bearer of the current attempt's
// token, before the Node was there: a Node that is older was made by somebody else.
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
			// That instance is gone.
		case !j.At.Before(c.machine.CreationTimestamp.Time):
			other = j.TokenID // Whoever had the name before the Machine was there is gone.
		}
	}
	switch name, id := c.node.Name, c.machine.NodeProviderID(); {
	case ours.IsZero():
		return unproven(c.node,
			"Node %s has no provider ID, and the cluster does not know of a certificate that it got for this machine's bootstrap token: "+
				"either its user data has none, or it joined more than an hour ago, or it is not this machine. If it is, set its provider ID to %s.", name, id)
	case other != "":
		return candidate{conflict: fmt.Sprintf("Node %s has no provider ID, and certificates for it were issued for this machine's bootstrap token and for %s.", name, other)}
	case c.node.CreationTimestamp.Time.Before(ours):
		return candidate{conflict: fmt.Sprintf("Node %s has no provider ID and was there before this machine joined.", name)}
	}
	return candidate{node: c.node}
}

func tainted(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}
