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

// taintCloudProvider is the taint that a Node has until a cloud-controller-manager has set its provider ID.
const taintCloudProvider = "node.cloudprovider.kubernetes.io/uninitialized"

type candidate struct {
	node *corev1.Node
	// conflict explains why a Node can never be accepted. The field belongsToOther is true if this Node belongs to
	// another Machine.
	conflict       string
	belongsToOther bool
	// claimants contains the Nodes with the Machine's provider ID if there are several.
	claimants []*corev1.Node
	// unprovenReason explains why a Node with the Machine's name is not accepted yet. The field since contains the
	// creation time of this Node.
	unprovenReason string
	since          time.Time
	// otherID is a Node that joined with the Machine's bootstrap token, but whose provider ID differs from the Machine's.
	otherID *corev1.Node
}

// unprovenCandidate returns a candidate without a Node. Until it is known to which Machine the Node belongs, the Node
// is not changed.
func unprovenCandidate(node *corev1.Node, format string, args ...any) candidate {
	return candidate{unprovenReason: fmt.Sprintf(format, args...), since: node.CreationTimestamp.Time}
}

type claim struct {
	machine *v1beta1.Machine
	node    *corev1.Node
	// otherMachines are the other Machines to which the Node may belong, because they have or expect a Node of this
	// name.
	otherMachines []v1beta1.Machine
	// attempt is the current attempt. The field tokenID is the ID of its bootstrap token, or "" if it cannot have a
	// token.
	attempt bootstrap.Attempt
	tokenID string
	// joinCertificates contains the client certificates for the Node's name that were issued for bootstrap tokens.
	joinCertificates []kubeletcsr.JoinCertificate
}

// findNodeByName looks for a Node without a provider ID that has the Node name of the Machine's instance. Some kubelets
// do not set the provider ID, and not every cluster has a cloud-controller-manager that sets it later.
func (p *pass) findNodeByName(ctx context.Context) (candidate, error) {
	name := index.NodeName(p.machine)
	if name == "" {
		return candidate{}, nil
	}
	node := &corev1.Node{}
	switch err := p.Target.Nodes.Get(ctx, client.ObjectKey{Name: name}, node); {
	case apierrors.IsNotFound(err):
		return candidate{}, nil
	case err != nil:
		return candidate{}, fmt.Errorf("read node %s: %w", name, err)
	case node.Spec.ProviderID == "" && p.machine.DeletionTimestamp.IsZero() && tainted(node, taintCloudProvider):
		return unprovenCandidate(node, "Waiting for the cloud-controller-manager to set the provider ID of node %s.", name), nil
	}
	return p.decideByName(ctx, node.DeepCopy())
}

func (p *pass) decideByName(ctx context.Context, node *corev1.Node) (candidate, error) {
	c := claim{machine: p.machine, node: node, attempt: attemptOf(p.machine)}
	if found, decided := c.withoutProof(); decided {
		return found, nil
	}
	if node.Spec.ProviderID != "" {
		return p.decideOtherID(ctx, c)
	}
	machines := &v1beta1.MachineList{}
	if err := p.Client.List(ctx, machines, client.MatchingFields{index.MachineByNodeName: node.Name}); err != nil {
		return candidate{}, fmt.Errorf("find the machines of node %s: %w", node.Name, err)
	}
	c.otherMachines = slices.DeleteFunc(machines.Items, func(m v1beta1.Machine) bool {
		return m.UID == p.machine.UID || !mayOwn(p.machine, &m, node)
	})
	if found, decided := c.byFormerNode(); decided {
		if found.node != nil {
			if named, err := p.namedByProvider(ctx, node.Name); err != nil || !named {
				return unprovenCandidate(node, "Node %s has no provider ID, and the provider does not report that this machine's instance registers under that name.",
					node.Name), err
			}
		}
		return found, nil
	}
	switch err := p.readJoins(ctx, &c); {
	case apierrors.IsForbidden(err): // A process that may not read tokens has created none.
		return unprovenCandidate(node, "Node %s has no provider ID, and the bootstrap token that it joined with cannot be read: %s",
			node.Name, err), nil
	case err != nil:
		return candidate{}, fmt.Errorf("find the bootstrap tokens that node %s joined with: %w", node.Name, err)
	}
	return c.byToken(), nil
}

func (p *pass) readJoins(ctx context.Context, c *claim) (err error) {
	if c.tokenID, err = p.tokens.ID(ctx, c.attempt); err == nil {
		c.joinCertificates, err = p.joins.Find(ctx, c.node.Name)
	}
	return err
}

func (c claim) withoutProof() (s candidate, decided bool) {
	switch {
	case c.node.Spec.ProviderID != "" && c.node.CreationTimestamp.Before(&c.machine.CreationTimestamp):
		return candidate{}, true // The Node belongs to an earlier instance with this name.
	case c.machine.Spec.ProviderID == "":
		return candidate{}, true // The Machine has no instance that could have registered the Node.
	case c.node.Status.NodeInfo.KubeletVersion == "":
		return unprovenCandidate(c.node, "Node %s exists, but no kubelet reports its status.", c.node.Name), true
	}
	return candidate{}, false
}

func (c claim) byFormerNode() (s candidate, decided bool) {
	for i := range c.otherMachines {
		if ref := c.otherMachines[i].Status.NodeRef; ref != nil && ref.UID == c.node.UID {
			return candidate{conflict: fmt.Sprintf("Node %s belongs to machine %s.", c.node.Name,
				client.ObjectKeyFromObject(&c.otherMachines[i]))}, true
		}
	}
	// If a Node was deleted, its kubelet still has the certificate and registers again under the same name. The rule
	// does not apply to a Machine that is being deleted. The Node may be gone together with the instance, and another
	// instance may have the same name.
	if ref := c.machine.Status.NodeRef; ref != nil && ref.Name == c.node.Name && len(c.otherMachines) == 0 &&
		c.machine.DeletionTimestamp.IsZero() && !c.node.CreationTimestamp.Before(&c.machine.CreationTimestamp) {
		return candidate{node: c.node}, true
	}
	return candidate{}, false
}

// byToken decides with the help of the certificates that were issued for the Node's name. One of these certificates
// must have been issued for the token of the current attempt before the Node was created. An older Node was
// registered by another instance.
func (c claim) byToken() candidate {
	var ours time.Time
	other := ""
	for _, j := range c.joinCertificates {
		switch {
		case c.tokenID != "" && j.TokenID == c.tokenID:
			if ours.IsZero() || j.RequestTime.Before(ours) {
				ours = j.RequestTime
			}
		case c.attempt.MatchesRecentAttempt(j.TokenID):
			// The attempt with this token is over, and its instance is gone.
		case !j.RequestTime.Before(c.machine.CreationTimestamp.Time):
			other = j.TokenID // Certificates from before the Machine's creation belong to an instance that is gone.
		}
	}
	switch name, id := c.node.Name, c.machine.NodeProviderID(); {
	case ours.IsZero():
		return unprovenCandidate(c.node, "Node %s has no provider ID, and no issued certificate connects it "+
			"to this machine's bootstrap token. Possible causes: the user data has no token, the node joined more "+
			"than an hour ago, or the node belongs to another machine. If the node belongs to this machine, set its "+
			"provider ID to %s.", name, id)
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
