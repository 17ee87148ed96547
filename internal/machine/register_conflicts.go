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
	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/nodemark"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/pkg/provider"
)

// The provider ID of a Node does not prove to which Machine the Node belongs. A kubelet can set any provider ID on its
// Node, authors can create Machines with any provider ID, and the ID can be built from a name that the author of the
// Machine chose. The mark on the Node or the provider must confirm that the Node belongs to the Machine.
//
// A kubelet cannot choose the name of its Node, which comes from its client certificate. A Node with the Machine's
// provider ID must therefore also have the name that the provider reports for the instance. If the provider reports no
// name, the Node conflicts if it joined with another bootstrap token, or if it has the name of another Machine's Node.

// conflictingNode is a Node with the Machine's provider ID that is not accepted as the Machine's Node.
type conflictingNode struct {
	*corev1.Node
	reason string
}

// splitConflicting divides the Nodes with the Machine's provider ID into Nodes that may belong to the Machine, and
// Nodes that conflict with it.
func (p *pass) splitConflicting(ctx context.Context, nodes []*corev1.Node) (own []*corev1.Node,
	conflicting []conflictingNode, err error) {
	for _, node := range nodes {
		reason, err := p.conflictOf(ctx, node)
		switch {
		case err != nil:
			return nil, nil, err
		case reason != "":
			conflicting = append(conflicting, conflictingNode{node, reason})
		default:
			own = append(own, node)
		}
	}
	return own, conflicting, nil
}

// conflictOf returns why a Node with the Machine's provider ID does not belong to the Machine. It returns "" if the
// Node belongs to the Machine.
func (p *pass) conflictOf(ctx context.Context, node *corev1.Node) (reason string, err error) {
	if !p.isMarked(node) {
		if reason, err := p.confirmUnmarked(ctx, node); err != nil || reason != "" {
			return reason, err
		}
	}
	if in := p.machine.Status.Instance; in != nil && in.NodeName != "" {
		if node.Name == in.NodeName {
			return "", nil
		}
		named, err := p.isRenamed(ctx, node)
		if err != nil || named {
			return "", err
		}
		return otherNodeName(node, in.NodeName), nil
	}
	joinedAsAnother := fmt.Sprintf(
		"Node %s is not accepted: it has the provider ID of this machine, but joined as another machine.", node.Name)
	others, err := p.othersNamed(ctx, node.Name)
	if err != nil || len(others) > 0 {
		return joinedAsAnother, err
	}
	tokenID, err := p.tokens.ID(ctx, attemptOf(p.machine))
	var joins []kubeletcsr.JoinCertificate
	if err == nil {
		joins, err = p.joins.Find(ctx, node.Name)
	}
	switch {
	case apierrors.IsForbidden(err): // A process that may not read tokens has created none.
		return "", nil
	case err != nil:
		return "", fmt.Errorf("find the bootstrap tokens that node %s joined with: %w", node.Name, err)
	}
	ours := slices.ContainsFunc(joins, func(j kubeletcsr.JoinCertificate) bool { return j.TokenID == tokenID })
	since := slices.ContainsFunc(joins, func(j kubeletcsr.JoinCertificate) bool {
		return !j.RequestTime.Before(p.machine.CreationTimestamp.Time)
	})
	if since && !ours {
		return joinedAsAnother, nil
	}
	return "", nil
}

// isMarked reports whether the mark on the Node proves that the Node belongs to the Machine of this cluster.
func (p *pass) isMarked(node *corev1.Node) bool {
	mark, _ := nodemark.Parse(node.Annotations[v1beta1.NodeAnnotationInstance])
	return mark.ClusterID == p.ClusterID && nodemark.Proves(p.machine, node)
}

// confirmUnmarked returns why a Node without the Machine's mark does not belong to the Machine. It returns "" if the
// provider confirms that the Node belongs to the Machine: the instance must have the tags of the Machine. If the Node
// does not have the provider's own ID for the instance, the instance must also register as this Node, and the Node must
// not be older than the instance. In this case, the provider is asked once for each Node.
func (p *pass) confirmUnmarked(ctx context.Context, node *corev1.Node) (reason string, err error) {
	m, known := p.machine, p.states.get(p.machine)
	ownID := node.Spec.ProviderID == m.Spec.ProviderID
	if reason, err := p.claimedByOther(ctx, node); err != nil || reason != "" {
		return reason, err
	}
	unconfirmed := fmt.Sprintf("Node %s is not accepted: it has the provider ID of this machine, but the provider does not "+
		"confirm that the node belongs to this machine's instance.", node.Name)
	mark, hasMark := nodemark.Parse(node.Annotations[v1beta1.NodeAnnotationInstance])
	switch {
	case ownID && known.instance.confirmedID == m.Spec.ProviderID:
		return "", nil
	case !ownID && hasMark && mark.ProviderID != m.Spec.ProviderID:
		return unconfirmed, nil // The Node belongs to another instance.
	case !ownID && known.registration.refusedNode == node.UID:
		return known.registration.refusal, nil
	}
	instance, inputs, err := p.fromProvider(ctx)
	switch {
	case provider.IsNotFound(err) && ownID && m.Status.Instance != nil &&
		!node.CreationTimestamp.Before(&m.CreationTimestamp):
		return "", nil // The recorded instance is gone, and the Node of no older instance has its ID.
	case ownID && (provider.IsNotFound(err) || refusedByDriver(err)):
		return unconfirmed, nil
	case err != nil && !ownID && !m.DeletionTimestamp.IsZero():
		return unconfirmed, nil // The ID in the status may be forged, so the deletion does not wait for the provider.
	case err != nil:
		return "", &unansweredError{err}
	case instance.OwnedBy(p.ClusterID, identity(m)) != nil:
		if wait := p.showsWithin(); wait > 0 { // The cloud may show the tags late.
			p.requeueIn(min(wait, p.pollInterval()))
			return unconfirmed, nil
		}
		reason = unconfirmed
	case ownID:
		p.states.update(m, func(s *machineState) { s.instance.confirmedID = m.Spec.ProviderID })
		return "", nil
	case p.olderThanInstance(node, instance):
		reason = fmt.Sprintf("Node %s is not accepted: it has the provider ID of this machine, but was created at %s, before "+
			"this machine's instance. If the host of the node no longer exists, delete the node. Otherwise, create a machine "+
			"with another name instead of this one.", node.Name, node.CreationTimestamp.UTC().Format(time.RFC3339))
	case instance.NodeName != "" && instance.NodeName != node.Name:
		reason = otherNodeName(node, instance.NodeName)
	case instance.NodeName == "" && NodeProviderID(inputs.NodeProviderID, instance) != node.Spec.ProviderID:
		reason = unconfirmed
	}
	if reason != "" {
		p.states.update(m, func(s *machineState) {
			s.registration.refusedNode, s.registration.refusal = node.UID, reason
		})
	}
	return reason, nil
}

// unansweredError means that the provider has not answered whether a Node belongs to the Machine's instance.
type unansweredError struct{ error }

func (e *unansweredError) Unwrap() error { return e.error }

// claimedByOther returns why a Node conflicts if its annotations name another existing Machine with the same provider
// ID. That Machine is read from the API server, because the cache contains only the Machines of this shard.
func (p *pass) claimedByOther(ctx context.Context, node *corev1.Node) (reason string, err error) {
	key := nodemark.MachineOf(node)
	if key.Namespace == "" || key.Name == "" || key == client.ObjectKeyFromObject(p.machine) {
		return "", nil
	}
	other := &v1beta1.Machine{}
	switch err := p.LiveReader.Get(ctx, key, other); {
	case apierrors.IsNotFound(err):
		return "", nil
	case apierrors.IsForbidden(err): // The process serves another namespace only.
	case err != nil:
		return "", fmt.Errorf("read machine %s, which the annotations of node %s name: %w", key, node.Name, err)
	case node.Spec.ProviderID != other.Spec.ProviderID && node.Spec.ProviderID != other.NodeProviderID():
		return "", nil // The Node has the name of an earlier Node, or its kubelet has changed the annotations.
	}
	return fmt.Sprintf("Node %s is not accepted: it belongs to machine %s, which has the same provider ID. Delete one of the "+
		"two machines, or remove the annotation %s of the node if it belongs to this machine.", node.Name, key,
		v1beta1.NodeAnnotationMachine), nil
}

// maxCloudClockSkew is how much the clock of the cloud may be ahead of the clock of the API server.
const maxCloudClockSkew = 10 * time.Minute

// olderThanInstance reports whether the Node existed before the instance of the Machine. Only an adopted instance can
// be older than its Machine.
func (p *pass) olderThanInstance(node *corev1.Node, instance *provider.Instance) bool {
	adopted := launchReason(p.machine) == v1beta1.ReasonInstanceAdopted
	return node.CreationTimestamp.Time.Before(instance.LaunchTime.Add(-maxCloudClockSkew)) ||
		!adopted && node.CreationTimestamp.Before(&p.machine.CreationTimestamp)
}

// isRenamed reports whether the provider has changed the name of the Machine's Node to the name of this Node. The
// name in the status may have been written by another client. The provider is asked once for each conflicting Node. A
// deletion does not wait for the provider's answer.
func (p *pass) isRenamed(ctx context.Context, node *corev1.Node) (bool, error) {
	if p.states.get(p.machine).registration.reportedConflict == node.UID {
		return false, nil
	}
	named, err := p.namedByProvider(ctx, node.Name)
	switch {
	case err != nil && p.machine.DeletionTimestamp.IsZero():
		return false, err
	case named:
		p.machine.Status.Instance.NodeName = node.Name
	}
	return named, nil
}

// othersNamed returns the other Machines whose Node has this name, or will have it.
func (p *pass) othersNamed(ctx context.Context, name string) ([]*v1beta1.Machine, error) {
	machines, err := index.ListShared[v1beta1.Machine](ctx, p.Client, &v1beta1.MachineList{},
		client.MatchingFields{index.MachineByNodeName: name})
	if err != nil {
		return nil, fmt.Errorf("find the machines of node %s: %w", name, err)
	}
	return slices.DeleteFunc(machines, func(m *v1beta1.Machine) bool { return m.UID == p.machine.UID }), nil
}

func (p *pass) reportConflicts(ctx context.Context, conflicting []conflictingNode) error {
	for _, other := range conflicting {
		if p.states.get(p.machine).registration.reportedConflict == other.UID {
			continue
		}
		others, err := p.othersNamed(ctx, other.Name)
		if err != nil {
			return err
		}
		p.warn(v1beta1.ReasonNodeConflict, "Register", other.reason)
		for _, machine := range others {
			if other.Spec.ProviderID == machine.Spec.ProviderID || nodemark.Proves(machine, other.Node) {
				continue // Another client wrote the provider ID of machine into p.machine.
			}
			p.Recorder.Eventf(machine, nil, corev1.EventTypeWarning, v1beta1.ReasonNodeConflict, "Register",
				"Node %s claims to be machine %s: its kubelet set the provider ID %s. Check the kubelet's configuration on the node.", other.Name,
				client.ObjectKeyFromObject(p.machine), wording.Truncate(p.machine.NodeProviderID(), 256))
		}
		p.states.update(p.machine, func(m *machineState) { m.registration.reportedConflict = other.UID })
	}
	return nil
}

func otherNodeName(node *corev1.Node, name string) string {
	return fmt.Sprintf("Node %s is not accepted: it has the provider ID of this machine, but the instance registers as node %s.",
		node.Name, name)
}

// namedByProvider reports whether the provider reports that the Machine's own instance registers under this name.
func (p *pass) namedByProvider(ctx context.Context, name string) (bool, error) {
	instance, _, err := p.fromProvider(ctx)
	return err == nil && instance.NodeName == name && instance.OwnedBy(p.ClusterID, identity(p.machine)) == nil, err
}

func (p *pass) fromProvider(ctx context.Context) (*provider.Instance, resolve.Inputs, error) {
	inputs, err := p.Classes.ResolveForDeletion(ctx, p.machine)
	if err != nil {
		return nil, inputs, fmt.Errorf("resolve the machine's class: %w", err)
	}
	instance, err := p.getInstance(ctx, inputs)
	if err != nil {
		return nil, inputs, fmt.Errorf("get the name of the machine's node from the provider: %w", err)
	}
	return instance, inputs, nil
}
