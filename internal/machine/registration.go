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
// become Ready within this time, so that one write can report both.
const registrationGrace = 30 * time.Second

type registrationStep struct{ *pass }

func (s *registrationStep) run(ctx context.Context) (progress, error) {
	if s.Target == nil {
		return s.withoutTarget(ctx)
	}
	found, err := s.findNode(ctx)
	node := found.node
	switch {
	case err != nil:
		return onError, err
	case found.conflict != "":
		return s.refuseNode(found.conflict, found.belongsToOther)
	case found.otherID != nil:
		return s.refuseOtherID(found.otherID)
	case node == nil && s.machine.Status.NodeRef != nil:
		return s.health.nodeGone(ctx)
	case node == nil && s.instance.failed != nil:
		return s.launch.handleFailedInstance(ctx, s.instance.failed)
	case node == nil:
		s.awaitNode(ctx, found)
		return onMachine | onNode, nil
	}
	refused, err := s.template.apply(ctx, node)
	if err != nil {
		return onError, err
	}
	if refused != "" && s.machine.Status.NodeRef == nil {
		// Without the labels and taints of the template, the Node would accept pods that must not run on it.
		if s.setCondition(v1beta1.ConditionRegistered, false, v1beta1.ReasonInvalidConfiguration, refused) {
			s.warn(v1beta1.ReasonInvalidConfiguration, "Register", refused)
		}
		s.failAfterTimeout(nil)
		return onMachine | onNode, nil
	}
	s.node = node
	if !s.isTrue(v1beta1.ConditionRegistered) && !nodeReady(node) {
		if left := node.CreationTimestamp.Add(registrationGrace).Sub(s.now); left > 0 {
			s.failAfterTimeout(nil)
			return onNode | s.after(left), nil
		}
	}
	if s.machine.Status.NodeRef == nil {
		s.instance.readAddresses(ctx)
	}
	s.machine.Status.NodeRef = &v1beta1.NodeRef{Name: node.Name, UID: node.UID}
	if in := s.machine.Status.Instance; in != nil && in.NodeName != "" {
		in.NodeName = node.Name // Another client wrote another name. A Node with that name was not accepted.
	}
	s.template.keepApplied()
	s.machine.Status.Version = wording.Truncate(node.Status.NodeInfo.KubeletVersion, 128)
	if contested := s.template.contested; refused == "" && contested != "" {
		if s.setCondition(v1beta1.ConditionRegistered, true, v1beta1.ReasonNodeTemplateContested, contested) {
			s.warn(v1beta1.ReasonNodeTemplateContested, "Register", contested)
		}
	} else if refused == "" {
		s.setCondition(v1beta1.ConditionRegistered, true, v1beta1.ReasonNodeRegistered, "")
	} else if s.setCondition(v1beta1.ConditionRegistered, true, v1beta1.ReasonInvalidConfiguration, refused) {
		// If the template cannot be applied to a node that already runs pods, the node stays in service.
		s.warn(v1beta1.ReasonInvalidConfiguration, "Register", refused)
	}
	return next, nil
}

// refuseNode reports that a Node is not accepted as the Machine's Node. If the Node belongs to another Machine (other
// is true), an event has already reported this.
func (s *registrationStep) refuseNode(conflict string, other bool) (progress, error) {
	if s.setCondition(v1beta1.ConditionRegistered, false, v1beta1.ReasonNodeConflict, conflict) && !other {
		s.warn(v1beta1.ReasonNodeConflict, "Register", conflict)
	}
	s.failAfterTimeout(nil)
	return onMachine | onOtherMachine | onNode, nil
}

// awaitNode reports what a Machine without a Node waits for. A Node without proof is reported only after
// registrationGrace.
func (s *registrationStep) awaitNode(ctx context.Context, found candidate) {
	message := fmt.Sprintf("No node with the provider ID %s has registered.", s.machine.NodeProviderID())
	if found.unproven != "" {
		if left := found.since.Add(registrationGrace).Sub(s.now); left > 0 {
			s.requeueIn(left)
		} else {
			message = found.unproven
		}
	} else if progress := s.joinProgress(ctx); progress != "" {
		message += " " + progress
	}
	s.setCondition(v1beta1.ConditionRegistered, false, v1beta1.ReasonWaitingForNode, message)
	s.failAfterTimeout(nil)
}

// withoutTarget handles a Machine without a target cluster. Available is the final phase of such a Machine.
func (s *registrationStep) withoutTarget(ctx context.Context) (progress, error) {
	s.setCondition(v1beta1.ConditionRegistered, false, v1beta1.ReasonNoTargetCluster,
		"There is no target cluster in which a node could register.")
	if s.instance.failed != nil {
		return s.launch.handleFailedInstance(ctx, s.instance.failed)
	}
	if s.machine.Status.Instance.State != v1beta1.InstanceRunning {
		s.failAfterTimeout(nil)
	}
	return next, nil
}

// findNode returns the Machine's Node. It prefers the Node of status.nodeRef. Otherwise, it returns the Node with the
// Machine's provider ID. A Node with the Machine's name and no provider ID must be proven to belong to the Machine.
func (s *registrationStep) findNode(ctx context.Context) (found candidate, err error) {
	ref := s.machine.Status.NodeRef
	defer func() {
		// Keep the reference if the provider has confirmed the Node, or if the provider could not be asked.
		if err != nil || ref != nil && found.node != nil && found.node.UID == ref.UID {
			s.machine.Status.NodeRef = ref
		}
	}()
	if ref != nil {
		paired := &corev1.Node{}
		err := s.Target.Nodes.Get(ctx, client.ObjectKey{Name: ref.Name}, paired)
		if err == nil && paired.UID == ref.UID && nodemark.Proves(s.machine, paired) {
			return candidate{node: paired.DeepCopy()}, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return candidate{}, fmt.Errorf("read node %s: %w", ref.Name, err)
		}
		if err == nil && paired.UID == ref.UID && paired.Spec.ProviderID != "" {
			s.machine.Status.NodeRef = nil // Another client may have written the reference.
		}
	}
	id := s.machine.NodeProviderID()
	nodes, err := index.Shared[corev1.Node](ctx, s.Target.Nodes, &corev1.NodeList{},
		client.MatchingFields{index.NodeByProviderID: id})
	if err != nil {
		return candidate{}, fmt.Errorf("find the node with the provider ID %s: %w", id, err)
	}
	nodes, conflicting, err := s.splitConflicting(ctx, nodes)
	if err == nil {
		err = s.reportConflicts(ctx, conflicting)
	}
	if err != nil {
		return candidate{}, err
	}
	switch len(nodes) {
	case 0:
		if len(conflicting) > 0 {
			return candidate{conflict: s.conflictMessage(conflicting[0]), belongsToOther: true}, nil
		}
		return s.findNodeByName(ctx)
	case 1:
	default:
		return candidate{
			conflict:  fmt.Sprintf("Nodes %s and %s both have the provider ID %s.", nodes[0].Name, nodes[1].Name, id),
			claimants: nodes,
		}, nil
	}
	machines, err := index.Shared[v1beta1.Machine](ctx, s.Client, &v1beta1.MachineList{},
		client.MatchingFields{index.MachineByProviderID: id})
	if err != nil {
		return candidate{}, fmt.Errorf("find the machines with the provider ID %s: %w", id, err)
	}
	for _, other := range machines {
		if other.UID == s.machine.UID || !s.mayOwn(other, nodes[0]) {
			continue
		}
		paired := other.Status.NodeRef != nil && other.Status.NodeRef.UID == nodes[0].UID
		if paired || older(other, s.machine) {
			return candidate{conflict: fmt.Sprintf("Node %s belongs to machine %s, which has the same provider ID and is older.", nodes[0].Name, client.ObjectKeyFromObject(other))}, nil
		}
	}
	return candidate{node: nodes[0].DeepCopy()}, nil
}

// mayOwn reports whether a Node may belong to another Machine. For Machines in other namespaces, only the Machine's
// spec and the mark on the Node count. Otherwise, a client that may write the status of Machines there could claim all
// Nodes.
func (s *registrationStep) mayOwn(other *v1beta1.Machine, node *corev1.Node) bool {
	return other.Namespace == s.machine.Namespace || other.Spec.ProviderID == s.machine.Spec.ProviderID ||
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
