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
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/wording"
)

// A kubelet says itself which provider ID its Node has, but not which name: that is in the certificate it joined
// with. So a Node that has the Machine's provider ID is the Machine's only if its name is the one that the provider
// tells for the instance. Where the provider cannot tell, it is not the Machine's if it joined with another bootstrap
// token, or has the name of another Machine. Any other Node conflicts.

// splitConflicting divides the Nodes with the Machine's provider ID into those that may be its own and conflicting
// ones.
func (s *registrationStep) splitConflicting(ctx context.Context, nodes []*corev1.Node) (own, conflicting []*corev1.Node,
	err error) {
	for _, node := range nodes {
		other, err := s.isConflicting(ctx, node)
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

func (s *registrationStep) isConflicting(ctx context.Context, node *corev1.Node) (bool, error) {
	if in := s.machine.Status.Instance; in != nil && in.NodeName != "" {
		if node.Name == in.NodeName {
			return false, nil
		}
		named, err := s.renamed(ctx, node)
		return !named, err
	}
	others, err := s.othersNamed(ctx, node.Name)
	if err != nil || len(others) > 0 {
		return true, err
	}
	tokenID, err := s.tokens.ID(ctx, s.launch.attempt())
	var joins []kubeletcsr.Joined
	if err == nil {
		joins, err = s.joins.Of(ctx, node.Name)
	}
	switch {
	case apierrors.IsForbidden(err): // Who may not read tokens has made none.
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find out who joined as node %s: %w", node.Name, err)
	}
	ours := slices.ContainsFunc(joins, func(j kubeletcsr.Joined) bool { return j.TokenID == tokenID })
	since := slices.ContainsFunc(joins, func(j kubeletcsr.Joined) bool {
		return !j.At.Before(s.machine.CreationTimestamp.Time)
	})
	return since && !ours, nil
}

// renamed reports whether the provider now says that the Machine's instance registers as the Node: others may have
// written the recorded name. It asks once for each conflicting Node. A deletion does not wait for the answer.
func (s *registrationStep) renamed(ctx context.Context, node *corev1.Node) (bool, error) {
	if s.states.get(s.machine).registration.reportedConflict == node.UID {
		return false, nil
	}
	named, err := s.namedByProvider(ctx, node.Name)
	switch {
	case err != nil && s.machine.DeletionTimestamp.IsZero():
		return false, err
	case named:
		s.machine.Status.Instance.NodeName = node.Name
	}
	return named, nil
}

// othersNamed returns the other Machines that are, or will be, the Node of a name.
func (s *registrationStep) othersNamed(ctx context.Context, name string) ([]*v1beta1.Machine, error) {
	machines, err := index.Shared[v1beta1.Machine](ctx, s.Client, &v1beta1.MachineList{},
		client.MatchingFields{index.MachineByNodeName: name})
	if err != nil {
		return nil, fmt.Errorf("find the machines of node %s: %w", name, err)
	}
	return slices.DeleteFunc(machines, func(m *v1beta1.Machine) bool { return m.UID == s.machine.UID }), nil
}

// reportConflicts records one event for each conflicting Node, on this Machine and on the Machines that own the Node.
func (s *registrationStep) reportConflicts(ctx context.Context, conflicting []*corev1.Node) error {
	for _, other := range conflicting {
		if s.states.get(s.machine).registration.reportedConflict == other.UID {
			continue
		}
		others, err := s.othersNamed(ctx, other.Name)
		if err != nil {
			return err
		}
		s.warn(v1beta1.ReasonNodeConflict, "Register", s.conflictMessage(other))
		for _, other := range others {
			s.Recorder.Eventf(other, nil, corev1.EventTypeWarning, v1beta1.ReasonNodeConflict, "Register",
				"Node %s says that it is the instance of machine %s: its kubelet gave it the provider ID %s.", other.Name,
				client.ObjectKeyFromObject(s.machine), wording.Truncate(s.machine.NodeProviderID(), 256))
		}
		s.states.update(s.machine, func(m *machineState) { m.registration.reportedConflict = other.UID })
	}
	return nil
}

func (s *registrationStep) conflictMessage(other *corev1.Node) string {
	if in := s.machine.Status.Instance; in != nil && in.NodeName != "" {
		return fmt.Sprintf("Node %s has the provider ID of this machine, whose instance registers as %s: it is not accepted.",
			other.Name, in.NodeName)
	}
	return fmt.Sprintf("Node %s has the provider ID of this machine, and joined as another one: it is not accepted.",
		other.Name)
}

// namedByProvider reports whether the provider itself says that the Machine's instance registers under a name.
func (s *registrationStep) namedByProvider(ctx context.Context, name string) (bool, error) {
	inputs, err := s.Classes.ResolveForDeletion(ctx, s.machine)
	if err != nil {
		return false, fmt.Errorf("resolve the machine's class: %w", err)
	}
	instance, err := s.instance.get(ctx, inputs)
	if err != nil {
		return false, fmt.Errorf("ask the provider for the name of the machine's node: %w", err)
	}
	return instance.NodeName == name, nil
}
