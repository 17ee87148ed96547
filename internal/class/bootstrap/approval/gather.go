package approval

import (
	"context"
	"fmt"

	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
)

// gather collects the facts for a decision except the addresses, because those require a call to the provider.
func (r *Reconciler) gather(ctx context.Context, request request) (Facts, error) {
	f := Facts{Now: r.Clock.Now(), Provider: r.Provider, GuestRanges: r.GuestRanges}
	name := request.Requester
	if request.Kind == kubeletcsr.Join {
		name = request.Wanted
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
	if request.Kind == kubeletcsr.Join {
		f.OtherMachine = precedingMachine(machines, f.Machine)
	} else if m := machineOf(machines, name); m != nil {
		f.Machine = m.DeepCopy()
	}
	f.Node, err = nodeFrom(ctx, r.Cache, name)
	return f, err
}

// nodeFrom reads a Node, and returns nil if there is none.
func nodeFrom(ctx context.Context, reader client.Reader, name string) (*Node, error) {
	node := &corev1.Node{}
	switch err := reader.Get(ctx, client.ObjectKey{Name: name}, node); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	return &Node{UID: node.UID, ProviderID: node.Spec.ProviderID}, nil
}

// liveOtherMachine returns another Machine that takes precedence over m for the node name. It finds the Machines with
// that name in the cache, and reads each from the API server.
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
		if cached[i].UID == m.UID {
			continue
		}
		other := v1beta1.Machine{}
		err := r.Live.Get(ctx, client.ObjectKeyFromObject(&cached[i]), &other)
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

// machinesByNodeName lists the Machines that are paired with this Node or whose instance will register it. Callers must
// not change the Machines.
func (r *Reconciler) machinesByNodeName(ctx context.Context, node string) ([]v1beta1.Machine, error) {
	list := &v1beta1.MachineList{}
	if err := r.Machines.List(ctx, list, client.MatchingFields{index.MachineByNodeName: node},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("find the machines of node %s: %w", node, err)
	}
	return list.Items, nil
}

// machineOf returns the Machine that is paired with the Node. If there is none yet, it returns one whose instance will
// register the Node.
func machineOf(machines []v1beta1.Machine, node string) *v1beta1.Machine {
	var expecting *v1beta1.Machine
	for i := range machines {
		m := &machines[i]
		if ref := m.Status.NodeRef; ref != nil && ref.Name == node {
			return m
		}
		expecting = m
	}
	return expecting
}

// precedingMachine returns one of the Machines with the same node name that takes precedence over m, or nil if there is
// none. A Machine takes precedence if it is paired with its Node or is older than m. A Machine that is being deleted
// never does: its Node counts while it exists.
func precedingMachine(machines []v1beta1.Machine, m *v1beta1.Machine) *v1beta1.Machine {
	if m == nil {
		return nil
	}
	for i := range machines {
		other := &machines[i]
		if other.UID != m.UID && other.DeletionTimestamp.IsZero() && (other.Status.NodeRef != nil || older(other, m)) {
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
