package machineclass

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
)

// hold adds the finalizer to a class that a Machine uses. The finalizer stays until the class is deleted, even if no
// Machine uses the class anymore. Otherwise a new Machine could use the class while the finalizer is being removed.
func (r *Reconciler) hold(ctx context.Context, class *v1beta1.MachineClass) error {
	if controllerutil.ContainsFinalizer(class, v1beta1.InUseFinalizer) {
		return nil
	}
	users, err := r.users(ctx, class, client.Limit(1))
	if users == 0 || err != nil {
		return err
	}
	return r.patchFinalizer(ctx, class, controllerutil.AddFinalizer)
}

func (r *Reconciler) users(ctx context.Context, class *v1beta1.MachineClass,
	options ...client.ListOption) (int, error) {
	machines, err := r.machines(ctx, class, options...)
	return len(machines), err
}

// machines returns the Machines of the class from the cache. The caller must not change the returned objects.
func (r *Reconciler) machines(ctx context.Context, class *v1beta1.MachineClass,
	options ...client.ListOption) ([]v1beta1.Machine, error) {
	machines := &v1beta1.MachineList{}
	options = append(options, client.InNamespace(class.Namespace), client.MatchingFields{index.MachineByClass: class.Name},
		client.UnsafeDisableDeepCopy)
	if err := r.Client.List(ctx, machines, options...); err != nil {
		return nil, fmt.Errorf("list the Machines of MachineClass %s: %w", client.ObjectKeyFromObject(class), err)
	}
	return machines.Items, nil
}

// patchFinalizer changes the finalizers. patchFinalizer fails if another client has changed the class meanwhile.
func (r *Reconciler) patchFinalizer(ctx context.Context, class *v1beta1.MachineClass,
	change func(client.Object, string) bool) error {
	before := class.DeepCopy()
	change(class, v1beta1.InUseFinalizer)
	if err := r.Client.Patch(ctx, class,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patch the finalizers of MachineClass %s: %w", client.ObjectKeyFromObject(before), err)
	}
	r.writes.Record(class)
	return nil
}
