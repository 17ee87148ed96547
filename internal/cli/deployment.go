package cli

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/inventory"
)

func (c *Cluster) deployment(ctx context.Context, name string) (*v1beta1.MachineDeployment, error) {
	d := &v1beta1.MachineDeployment{}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, d); {
	case apierrors.IsNotFound(err) && !isUnknownResource(err):
		return nil, fmt.Errorf("machinedeployment %q not found in namespace %q: %w", name, c.Namespace, err)
	case err != nil:
		return nil, c.Explain(err)
	}
	return d, nil
}

func (c *Cluster) setsOf(ctx context.Context, d *v1beta1.MachineDeployment) ([]*v1beta1.MachineSet, error) {
	var list v1beta1.MachineSetList
	if err := c.List(ctx, &list, client.InNamespace(d.Namespace)); err != nil {
		return nil, c.Explain(fmt.Errorf("list the sets of machinedeployment %q: %w", d.Name, err))
	}
	return inventory.Join([]v1beta1.MachineDeployment{*d}, list.Items, nil).Sets(d), nil
}

func (c *Cluster) ownedBy(ctx context.Context, d *v1beta1.MachineDeployment) ([]*v1beta1.MachineSet, []*v1beta1.Machine,
	error) {
	var sets v1beta1.MachineSetList
	var machines v1beta1.MachineList
	for _, list := range []client.ObjectList{&sets, &machines} {
		if err := c.List(ctx, list, client.InNamespace(d.Namespace)); err != nil {
			return nil, nil, c.Explain(fmt.Errorf("list the sets and machines of machinedeployment %q: %w", d.Name, err))
		}
	}
	joined := inventory.Join([]v1beta1.MachineDeployment{*d}, sets.Items, machines.Items)
	return joined.Sets(d), joined.AllMachines(d), nil
}

// maxConflicts limits the attempts to write an object while other clients update its status.
const maxConflicts = 10

// edit changes a deployment. The method fails if another client has changed the specification since d was read.
func (c *Cluster) edit(ctx context.Context, d *v1beta1.MachineDeployment, change func(*v1beta1.MachineDeployment),
	options ...client.PatchOption) error {
	_, err := edit(ctx, c, d, func(d *v1beta1.MachineDeployment) error {
		change(d)
		return nil
	}, options...)
	return err
}

// edit applies a change to an object in the API server, and returns the changed object. The function fails if another
// client has changed the specification since the object was read. If another client has changed only the status or
// metadata, edit reads the object again and retries. If the change itself returns an error, nothing is written.
func edit[T client.Object](ctx context.Context, c *Cluster, o T, change func(T) error,
	options ...client.PatchOption) (T, error) {
	var none T
	kind, _, err := kindAndList(c, o)
	if err != nil {
		return none, err
	}
	for range maxConflicts {
		after := o.DeepCopyObject().(T)
		if err := change(after); err != nil {
			return none, err
		}
		err := c.Patch(ctx, after, patchFrom(o), options...)
		if err == nil {
			return after, nil
		}
		if !apierrors.IsConflict(err) {
			return none, c.Explain(fmt.Errorf("change %s %q: %w", kind, o.GetName(), err))
		}
		fresh, err := read(ctx, c, o)
		switch {
		case apierrors.IsNotFound(err) && !isUnknownResource(err):
			return none, fmt.Errorf("%s %q not found in namespace %q: %w", kind, o.GetName(), o.GetNamespace(), err)
		case err != nil:
			return none, c.Explain(err)
		case fresh.GetUID() != o.GetUID() || fresh.GetGeneration() != o.GetGeneration():
			return none, fmt.Errorf("%s %q was changed by another client in the meantime: nothing was written, "+
				"check the object and try again", kind, o.GetName())
		}
		o = fresh
	}
	return none, fmt.Errorf("change %s %q: %d attempts failed because of conflicts with other clients; try again", kind,
		o.GetName(), maxConflicts)
}
