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

// handOver deletes each Machine at the source whose instance the destination has taken over, and returns when that is
// so of all. They stay, being paused and protected by their finalizer, until their owners are gone: a set must not be
// left without machines before the destination has a set.
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
	there := map[client.ObjectKey]*v1beta1.Machine{}
	for i := range list.Items {
		there[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
	}
	for _, o := range f.of("Machine") {
		machine, err := machineOf(o)
		if err != nil {
			return nil, err
		}
		if !moved(o) {
			if moving(o) != m.To {
				continue // It was made meanwhile, and is moved when all others are.
			}
			if !machinestate.Paused(machine) {
				return nil, resumed(o)
			}
			why, err := notTakenOver(machine, there[client.ObjectKeyFromObject(o)])
			if err != nil {
				return nil, err
			}
			if why != "" {
				waiting = append(waiting, why)
				continue
			}
			if err := m.change(ctx, o, func(o *object) { mark(o, movedTo, m.To) }); err != nil {
				return nil, err
			}
		}
		if o.GetDeletionTimestamp() != nil {
			continue
		}
		// Of that version the Machine is paused, and its instance the destination's.
		err = m.Source.Delete(ctx, o, client.Preconditions{UID: ptr.To(o.GetUID()),
			ResourceVersion: ptr.To(o.GetResourceVersion())})
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("at the source: delete %s: %w", nameOf(o), err)
		}
	}
	return waiting, nil
}

// notTakenOver says what a Machine of the source waits for until its instance is that of its copy; empty if it is.
func notTakenOver(source, copied *v1beta1.Machine) (string, error) {
	name := source.Namespace + "/" + source.Name
	switch {
	case copied == nil && !source.DeletionTimestamp.IsZero():
		return "", fmt.Errorf("the source's Machine %s was deleted before it was moved: take the annotation %s off, so that "+
			"the source removes its instance", name, v1beta1.AnnotationPaused)
	case copied == nil:
		return "", fmt.Errorf("the destination's Machine %s is gone, and it is not known whether its instance is: repeat "+
			"the command, which makes it again, or delete the Machine of the source", name)
	case copied.Spec.ProviderID != source.Spec.ProviderID:
		return "", fmt.Errorf("the destination's Machine %s has another instance", name)
	case copied.Status.Instance == nil || copied.Adopting():
		return fmt.Sprintf("the destination's Machine %s to take its instance over (%s)", name,
			messageOf(copied, v1beta1.ConditionLaunched)), nil
	case source.Status.NodeRef != nil && copied.Status.NodeRef == nil:
		return fmt.Sprintf("the destination's Machine %s to find its node %s: both control clusters must have the same "+
			"target cluster", name, source.Status.NodeRef.Name), nil
	}
	return "", nil
}

// remove deletes at the source what the destination has. Owners go first, so that nothing makes a machine.
func (m *Move) remove(ctx context.Context) error {
	for _, kind := range []string{"MachineHealthCheck", "MachineDeployment", "MachineSet", "MachineDisruptionBudget"} {
		if err := m.await(ctx, func(ctx context.Context) ([]string, error) { return m.delete(ctx, kind) }); err != nil {
			return err
		}
	}
	if err := m.await(ctx, m.release); err != nil {
		return err
	}
	f, err := m.gather(ctx)
	if err != nil || len(f.of("Machine", "MachineSet", "MachineDeployment")) > 0 {
		return err // They need the rest.
	}
	for _, kind := range []string{"MachineClass", "Secret"} {
		if err := m.await(ctx, func(ctx context.Context) ([]string, error) { return m.delete(ctx, kind) }); err != nil {
			return err
		}
	}
	return nil
}

// delete deletes what is left of a kind, and names it.
func (m *Move) delete(ctx context.Context, kind string) (waiting []string, err error) {
	f, err := m.gather(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range f.of(kind) {
		if f.shared[keyOf(o)] || moving(o) != m.To {
			continue
		}
		if o.GetDeletionTimestamp() == nil {
			err := m.Source.Delete(ctx, o, client.Preconditions{UID: ptr.To(o.GetUID())})
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("at the source: delete %s: %w", nameOf(o), err)
			}
		}
		waiting = append(waiting, fmt.Sprintf("%s of the source to be gone", nameOf(o)))
	}
	return waiting, nil
}

// release removes our finalizer from the Machines whose instances are the destination's, and names those that are left.
func (m *Move) release(ctx context.Context) (waiting []string, err error) {
	f, err := m.gather(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range f.of("Machine") {
		if !moved(o) || o.GetDeletionTimestamp() == nil {
			continue
		}
		machine, err := machineOf(o)
		if err != nil {
			return nil, err
		}
		if !machinestate.Paused(machine) {
			return nil, resumed(o)
		}
		left := slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == v1beta1.MachineFinalizer })
		if len(left) < len(o.GetFinalizers()) {
			if err := m.change(ctx, o, func(o *object) { o.SetFinalizers(left) }); err != nil {
				return nil, err
			}
		}
		if len(left) > 0 {
			waiting = append(waiting, fmt.Sprintf("the finalizers %v of others to be removed from %s", left, nameOf(o)))
		}
	}
	return waiting, nil
}

// endPermission takes back from the classes of the destination that they take over instances of the source.
func (m *Move) endPermission(ctx context.Context) error {
	all, err := backup.List(ctx, m.Destination, m.Namespace, false)
	if err != nil {
		return atDestination("%w", err)
	}
	for _, o := range all {
		if o.GetKind() != "MachineClass" || o.GetAnnotations()[v1beta1.AnnotationAdoptFromCluster] != m.From {
			continue
		}
		changed := o.DeepCopy()
		annotations := changed.GetAnnotations()
		delete(annotations, v1beta1.AnnotationAdoptFromCluster)
		delete(annotations, v1beta1.AnnotationAdoptFromClusterUntil)
		changed.SetAnnotations(annotations)
		if err := m.Destination.Patch(ctx, changed, client.MergeFrom(o)); err != nil && !apierrors.IsNotFound(err) {
			return atDestination("end the permission of %s: %w", nameOf(o), err)
		}
	}
	return nil
}
