package machine

import (
	"context"
	"fmt"
	"slices"

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

// A kubelet can set any provider ID on its Node, but it cannot choose the name of the Node, which comes from its client
// certificate. A Node with the Machine's provider ID therefore belongs to the Machine only if it has the name that the
// provider reports for the instance.
//
// If the provider reports no name, the Node conflicts if it joined with another bootstrap token, or if it has the name
// of another Machine's Node. If only the Machine's status contains the provider ID, the ID alone proves nothing. Then
// the mark on the Node or the provider must confirm that the Node belongs to the Machine.

// splitConflicting divides the Nodes with the Machine's provider ID into Nodes that may belong to the Machine, and
// Nodes that conflict with it.
func (p *pass) splitConflicting(ctx context.Context, nodes []*corev1.Node) (own, conflicting []*corev1.Node,
	err error) {
	for _, node := range nodes {
		other, err := p.isConflicting(ctx, node)
		switch {
		case err != nil:
			return nil, nil, err
		case other:
			conflicting = append(conflicting, node)
		default:
			own = append(own, node)
		}
	}
	return own, conflicting, nil
}

func (p *pass) isConflicting(ctx context.Context, node *corev1.Node) (bool, error) {
	if !nodemark.Proves(p.machine, node) {
		if confirmed, err := p.confirmUnmarked(ctx, node); err != nil || !confirmed {
			return true, err
		}
	}
	if in := p.machine.Status.Instance; in != nil && in.NodeName != "" {
		if node.Name == in.NodeName {
			return false, nil
		}
		named, err := p.renamed(ctx, node)
		return !named, err
	}
	others, err := p.othersNamed(ctx, node.Name)
	if err != nil || len(others) > 0 {
		return true, err
	}
	tokenID, err := p.tokens.ID(ctx, attemptOf(p.machine))
	var joins []kubeletcsr.Joined
	if err == nil {
		joins, err = p.joins.Of(ctx, node.Name)
	}
	switch {
	case apierrors.IsForbidden(err): // A process that may not read tokens has created none.
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find the bootstrap tokens that node %s joined with: %w", node.Name, err)
	}
	ours := slices.ContainsFunc(joins, func(j kubeletcsr.Joined) bool { return j.TokenID == tokenID })
	since := slices.ContainsFunc(joins, func(j kubeletcsr.Joined) bool {
		return !j.At.Before(p.machine.CreationTimestamp.Time)
	})
	return since && !ours, nil
}

// confirmUnmarked asks the provider whether a Node without the mark belongs to the Machine. The provider ID of such a
// Node is only in the Machine's status, where another client may have written it. The provider is asked once for each
// Node. A deletion does not wait for the provider's answer.
func (p *pass) confirmUnmarked(ctx context.Context, node *corev1.Node) (bool, error) {
	_, marked := nodemark.Parse(node.Annotations[v1beta1.NodeAnnotationInstance])
	if marked || p.states.get(p.machine).registration.reportedConflict == node.UID {
		return false, nil // The Node belongs to another instance.
	}
	instance, inputs, err := p.fromProvider(ctx)
	switch {
	case err != nil && p.machine.DeletionTimestamp.IsZero():
		return false, err
	case err != nil:
		return false, nil
	case instance.NodeName != "":
		return instance.NodeName == node.Name, nil
	}
	return nodeProviderID(inputs.NodeProviderID, instance) == node.Spec.ProviderID, nil
}

// renamed reports whether the provider has changed the name of the Machine's Node to the name of this Node. The name in
// the status may have been written by another client. The provider is asked once for each conflicting Node. A deletion
// does not wait for the provider's answer.
func (p *pass) renamed(ctx context.Context, node *corev1.Node) (bool, error) {
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
	machines, err := index.Shared[v1beta1.Machine](ctx, p.Client, &v1beta1.MachineList{},
		client.MatchingFields{index.MachineByNodeName: name})
	if err != nil {
		return nil, fmt.Errorf("find the machines of node %s: %w", name, err)
	}
	return slices.DeleteFunc(machines, func(m *v1beta1.Machine) bool { return m.UID == p.machine.UID }), nil
}

func (p *pass) reportConflicts(ctx context.Context, conflicting []*corev1.Node) error {
	for _, other := range conflicting {
		if p.states.get(p.machine).registration.reportedConflict == other.UID {
			continue
		}
		others, err := p.othersNamed(ctx, other.Name)
		if err != nil {
			return err
		}
		p.warn(v1beta1.ReasonNodeConflict, "Register", conflictMessage(p.machine, other))
		for _, machine := range others {
			if nodemark.Proves(machine, other) {
				continue // Another client wrote this machine's provider ID into the status of this one.
			}
			p.Recorder.Eventf(machine, nil, corev1.EventTypeWarning, v1beta1.ReasonNodeConflict, "Register",
				"Node %s claims to be machine %s: its kubelet set the provider ID %s. Check the kubelet's configuration on the node.", other.Name,
				client.ObjectKeyFromObject(p.machine), wording.Truncate(p.machine.NodeProviderID(), 256))
		}
		p.states.update(p.machine, func(m *machineState) { m.registration.reportedConflict = other.UID })
	}
	return nil
}

func conflictMessage(m *v1beta1.Machine, other *corev1.Node) string {
	if in := m.Status.Instance; in != nil && in.NodeName != "" {
		return fmt.Sprintf("Node %s is not accepted: it has the provider ID of this machine, "+
			"but the instance registers as node %s.",
			other.Name, in.NodeName)
	}
	return fmt.Sprintf("Node %s is not accepted: it has the provider ID of this machine, but joined as another machine.",
		other.Name)
}

func (p *pass) namedByProvider(ctx context.Context, name string) (bool, error) {
	instance, _, err := p.fromProvider(ctx)
	return err == nil && instance.NodeName == name, err
}

func (p *pass) fromProvider(ctx context.Context) (*provider.Instance, resolve.Resolved, error) {
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
