package move

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/transfer/backup"
)

// handOver deletes each Machine from the source after the destination has adopted its instance. Deleted Machines keep
// their finalizer until their owners are deleted, so that no set of the source creates a replacement.
func (m *Move) handOver(ctx context.Context) error { return m.await(ctx, m.handOverOnce) }

func (m *Move) handOverOnce(ctx context.Context) (waiting []string, err error) {
	f, err := m.gather(ctx)
	if err != nil {
		return nil, err
	}
	list := &v1beta1.MachineList{}
	if err := m.Destination.List(ctx, list, client.InNamespace(m.Namespace)); err != nil {
		return nil, atDestination("list machines: %w", err)
	}
	existing := map[client.ObjectKey]*v1beta1.Machine{}
	for i := range list.Items {
		existing[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
	}
	for _, o := range f.ofKinds("Machine") {
		machine, err := machineOf(o)
		if err != nil {
			return nil, err
		}
		if !isMoved(o) {
			if destinationOf(o) != m.DestinationID {
				continue // This Machine was created after the move began. Another run moves this Machine.
			}
			if !machinestate.IsPaused(machine) {
				return nil, resumedError(o)
			}
			why, err := waitForAdoption(machine, existing[client.ObjectKeyFromObject(o)])
			if err != nil {
				return nil, err
			}
			if why != "" {
				waiting = append(waiting, why)
				continue
			}
			if err := m.patchSource(ctx, o, func(o *object) { mark(o, movedTo, m.DestinationID) }); err != nil {
				return nil, err
			}
		}
		if o.GetDeletionTimestamp() != nil {
			continue
		}
		// In this resource version, the Machine is paused and the destination owns its instance.
		err = m.Source.Delete(ctx, o, client.Preconditions{UID: ptr.To(o.GetUID()),
			ResourceVersion: ptr.To(o.GetResourceVersion())})
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("in the source: delete %s: %w", nameOf(o), err)
		}
	}
	return waiting, nil
}

// waitForAdoption explains why the destination has not adopted the instance of a Machine yet. It returns "" if the
// destination has adopted the instance.
func waitForAdoption(source, copied *v1beta1.Machine) (string, error) {
	name := source.Namespace + "/" + source.Name
	switch {
	case copied == nil && !source.DeletionTimestamp.IsZero():
		return "", fmt.Errorf("machine %s was deleted from the source before it was moved: remove the annotation %s, so "+
			"that the source deletes its instance", name, v1beta1.AnnotationPaused)
	case copied == nil:
		return "", fmt.Errorf("machine %s does not exist in the destination any more, and its instance may be gone: "+
			"repeat the command to create the Machine again, or delete it from the source", name)
	case copied.Spec.ProviderID != source.Spec.ProviderID:
		return "", fmt.Errorf("machine %s has different instances in the source and in the destination", name)
	case copied.Status.Instance == nil || copied.IsAdopting():
		return fmt.Sprintf("the destination to adopt the instance of Machine %s (%s)", name,
			messageOf(copied, v1beta1.ConditionLaunched)), nil
	case source.Status.NodeRef != nil && copied.Status.NodeRef == nil:
		return fmt.Sprintf("Machine %s in the destination to find its Node %s: both control clusters must have the same "+
			"target cluster", name, source.Status.NodeRef.Name), nil
	}
	return "", nil
}

// remove deletes the moved objects from the source. Owners are deleted first, so that they create no more machines.
func (m *Move) remove(ctx context.Context) error {
	for _, kind := range []string{"MachineHealthCheck", "MachineDeployment", "MachineSet", "MachineDisruptionBudget"} {
		if err := m.await(ctx, func(ctx context.Context) ([]string, error) { return m.deleteKind(ctx, kind) }); err != nil {
			return err
		}
	}
	if err := m.await(ctx, m.removeFinalizers); err != nil {
		return err
	}
	f, err := m.gather(ctx)
	if err != nil || len(f.ofKinds("Machine", "MachineSet", "MachineDeployment")) > 0 {
		return err // The remaining objects still need the classes and Secrets.
	}
	for _, kind := range []string{"MachineClass", "Secret"} {
		if err := m.await(ctx, func(ctx context.Context) ([]string, error) { return m.deleteKind(ctx, kind) }); err != nil {
			return err
		}
	}
	return nil
}

// deleteKind deletes all objects of a kind. It returns the names of the objects that still exist.
func (m *Move) deleteKind(ctx context.Context, kind string) (waiting []string, err error) {
	f, err := m.gather(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range f.ofKinds(kind) {
		if f.sharedKeys[keyOf(o)] || destinationOf(o) != m.DestinationID {
			continue
		}
		if o.GetDeletionTimestamp() == nil {
			err := m.Source.Delete(ctx, o, client.Preconditions{UID: ptr.To(o.GetUID())})
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("in the source: delete %s: %w", nameOf(o), err)
			}
		}
		waiting = append(waiting, fmt.Sprintf("%s to be deleted from the source", nameOf(o)))
	}
	return waiting, nil
}

// removeFinalizers removes Machinist's finalizer from adopted Machines, and returns the Machines with other finalizers.
func (m *Move) removeFinalizers(ctx context.Context) (waiting []string, err error) {
	f, err := m.gather(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range f.ofKinds("Machine") {
		if !isMoved(o) || o.GetDeletionTimestamp() == nil {
			continue
		}
		machine, err := machineOf(o)
		if err != nil {
			return nil, err
		}
		if !machinestate.IsPaused(machine) {
			return nil, resumedError(o)
		}
		left := slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == v1beta1.MachineFinalizer })
		if len(left) < len(o.GetFinalizers()) {
			if err := m.patchSource(ctx, o, func(o *object) { o.SetFinalizers(left) }); err != nil {
				return nil, err
			}
		}
		if len(left) > 0 {
			waiting = append(waiting, fmt.Sprintf("other controllers to remove the finalizers %v from %s", left, nameOf(o)))
		}
	}
	return waiting, nil
}

// revokePermission ends the permission of the destination's classes to adopt instances of the source.
func (m *Move) revokePermission(ctx context.Context) error {
	all, err := backup.List(ctx, m.Destination, m.Namespace, false)
	if err != nil {
		return atDestination("%w", err)
	}
	for _, o := range all {
		if o.GetKind() != "MachineClass" || o.GetAnnotations()[v1beta1.AnnotationAdoptFromCluster] != m.SourceID {
			continue
		}
		changed := o.DeepCopy()
		annotations := changed.GetAnnotations()
		delete(annotations, v1beta1.AnnotationAdoptFromCluster)
		delete(annotations, v1beta1.AnnotationAdoptFromClusterUntil)
		changed.SetAnnotations(annotations)
		if err := m.Destination.Patch(ctx, changed, client.MergeFrom(o)); err != nil && !apierrors.IsNotFound(err) {
			return atDestination("revoke the permission of %s to adopt instances: %w", nameOf(o), err)
		}
	}
	return nil
}
