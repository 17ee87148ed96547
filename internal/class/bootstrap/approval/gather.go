package approval

import (
	"cmp"
	"context"
	"fmt"

	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/nodemark"
)

func (r *Reconciler) gather(ctx context.Context, request request) (Facts, error) {
	f := Facts{Now: r.Clock.Now(), Provider: r.Provider, GuestRanges: r.GuestRanges, ReservedNames: r.ReservedNames}
	name := request.Requester
	if request.Kind == kubeletcsr.KindJoin {
		name = request.RequestedNode
		var err error
		if f.Token, err = r.tokens.Lookup(ctx, request.TokenID); err != nil {
			return Facts{}, err
		}
		if f.Token != nil && f.Token.Owner != "" {
			m := &v1beta1.Machine{}
			switch err := r.Machines.Get(ctx, f.Token.Machine, m); {
			case err == nil:
				f.Machine = m
			case !apierrors.IsNotFound(err):
				return Facts{}, fmt.Errorf("read machine %s: %w", f.Token.Machine, err)
			}
		}
	}
	if name == "" {
		return f, nil
	}
	machines, err := r.machinesByNodeName(ctx, name)
	if err != nil {
		return Facts{}, err
	}
	if f.Node, err = nodeFrom(ctx, r.Cache, name); err != nil {
		return Facts{}, err
	}
	if request.Kind == kubeletcsr.KindJoin {
		f.OtherMachine = precedingMachine(machines, f.Machine)
	} else if m := machineOf(machines, name, f.Node); m != nil {
		f.Machine = m.DeepCopy()
	}
	return f, nil
}

func nodeFrom(ctx context.Context, reader client.Reader, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	switch err := reader.Get(ctx, client.ObjectKey{Name: name}, node); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	return node, nil
}

// liveOtherMachine returns a Machine with the same node name that takes precedence over m, or nil. The cache provides
// the candidates of the namespace, and a live read confirms each.
func (r *Reconciler) liveOtherMachine(ctx context.Context, name string, m *v1beta1.Machine) (*v1beta1.Machine, error) {
	if m == nil {
		return nil, nil
	}
	cached, err := r.machinesByNodeName(ctx, name)
	if err != nil {
		return nil, err
	}
	var live []v1beta1.Machine
	for i := range cached {
		if cached[i].UID == m.UID || cached[i].Namespace != m.Namespace {
			continue
		}
		other := v1beta1.Machine{}
		err := r.LiveClient.Get(ctx, client.ObjectKeyFromObject(&cached[i]), &other)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read machine %s, which also has the node name %s: %w",
				client.ObjectKeyFromObject(&cached[i]), name, err)
		}
		if err == nil && index.NodeName(&other) == name {
			live = append(live, other)
		}
	}
	return precedingMachine(live, m), nil
}

// machinesByNodeName returns the Machines that have or will get a Node with this name. Callers must not change the
// Machines.
func (r *Reconciler) machinesByNodeName(ctx context.Context, node string) ([]v1beta1.Machine, error) {
	list := &v1beta1.MachineList{}
	if err := r.Machines.List(ctx, list, client.MatchingFields{index.MachineByNodeName: node},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("find the machines of node %s: %w", node, err)
	}
	return list.Items, nil
}

// machineOf returns the Machine of a Node. machineOf prefers a Machine whose status.nodeRef names the Node. If
// several Machines name the Node, machineOf prefers a Machine that the Node's mark or provider ID confirms. The last
// choice is a Machine whose instance will register the Node.
func machineOf(machines []v1beta1.Machine, name string, node *corev1.Node) *v1beta1.Machine {
	var paired, expecting *v1beta1.Machine
	for i := range machines {
		m := &machines[i]
		ref := m.Status.NodeRef
		switch {
		case ref == nil || ref.Name != name:
			expecting = m
		case node != nil && nodemark.Proves(m, node):
			return m
		default:
			paired = m
		}
	}
	return cmp.Or(paired, expecting)
}

// precedingMachine returns a Machine with the same node name that takes precedence over m, or nil. Such a Machine is
// already paired with its Node, or was created before m. Machines being deleted do not count, because their Node
// prevents the approval. Machines of other namespaces do not count. Otherwise a client that writes their status could
// claim the names of all nodes.
func precedingMachine(machines []v1beta1.Machine, m *v1beta1.Machine) *v1beta1.Machine {
	if m == nil {
		return nil
	}
	for i := range machines {
		other := &machines[i]
		if other.UID != m.UID && other.Namespace == m.Namespace && other.DeletionTimestamp.IsZero() &&
			(other.Status.NodeRef != nil || older(other, m)) {
			return other.DeepCopy()
		}
	}
	return nil
}

func older(a, b *v1beta1.Machine) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}
