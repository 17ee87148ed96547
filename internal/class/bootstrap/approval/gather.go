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

// gather collects what a request is judged by, all but the addresses: those cost a call to the provider.
func (r *Reconciler) gather(ctx context.Context, request request) (Facts, error) {
	f := Facts{Now: r.Clock.Now(), Provider: r.Provider}
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
	machines, err := r.machinesOf(ctx, name)
	if err != nil {
		return Facts{}, err
	}
	if request.Kind == kubeletcsr.Join {
		f.OtherMachine = betterClaim(machines, f.Machine)
	} else if m := paired(machines, name); m != nil {
		f.Machine = m.DeepCopy()
	}
	f.Node, err = nodeFrom(ctx, r.Cache, name)
	return f, err
}

// nodeFrom reads what counts of a Node, nil if there is none.
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

// otherNow returns the conflicting Node of a Machine among those that the cache has under the name, each as it is at
// the API server.
func (r *Reconciler) otherNow(ctx context.Context, name string, m *v1beta1.Machine) (*v1beta1.Machine, error) {
	if m == nil {
		return nil, nil
	}
	cached, err := r.machinesOf(ctx, name)
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
			return nil, fmt.Errorf("read machine %s, which has the node name %s too: %w",
				client.ObjectKeyFromObject(&cached[i]), name, err)
		}
		if err == nil && index.NodeName(&other) == name {
			live = append(live, other)
		}
	}
	return betterClaim(live, m), nil
}

// machinesOf lists the Machines that are the Node of that name, or expect to become it. They must not be changed.
func (r *Reconciler) machinesOf(ctx context.Context, node string) ([]v1beta1.Machine, error) {
	list := &v1beta1.MachineList{}
	if err := r.Machines.List(ctx, list, client.MatchingFields{index.MachineByNodeName: node},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("find the machines of node %s: %w", node, err)
	}
	return list.Items, nil
}

// paired returns the Machine that is the Node of that name or, where there is none yet, one that expects to become it.
func paired(machines []v1beta1.Machine, node string) *v1beta1.Machine {
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

// betterClaim returns a Machine other than m, of those with the same node name, whose claim to it is better: it is
// that Node, or it is older. One that is being deleted has none, only its Node while that is there.
func betterClaim(machines []v1beta1.Machine, m *v1beta1.Machine) *v1beta1.Machine {
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
