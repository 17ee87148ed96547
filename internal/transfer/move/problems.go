package move

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/transfer/backup"
)

func (m *Move) problems(ctx context.Context, f *fleet) (problems []string, err error) {
	for _, o := range f.objects {
		if to := destinationOf(o); to != "" && to != m.DestinationID {
			problems = append(problems, fmt.Sprintf("%s is being moved to cluster %s", nameOf(o), to))
			continue
		}
		if o.GetKind() != "Machine" || destinationOf(o) != "" {
			continue
		}
		machine, err := machineOf(o)
		switch {
		case err != nil:
			return nil, err
		case machine.Spec.ClassRef == nil:
			problems = append(problems, fmt.Sprintf("%s has no class, and only a class can permit the adoption of its "+
				"instance", nameOf(o)))
		case machinestate.IsPaused(machine):
			problems = append(problems, fmt.Sprintf("%s is paused, so its instance would not be adopted: remove the "+
				"annotation %s", nameOf(o), pausedBy(machine)))
		}
	}
	existing, err := m.existingInDestination(ctx, f)
	if err != nil {
		return nil, err
	}
	for _, o := range f.objects {
		if why := m.collision(o, existing[keyOf(o)]); why != "" {
			problems = append(problems, why)
		}
	}
	return problems, nil
}

func pausedBy(m *v1beta1.Machine) string {
	if _, found := m.Annotations[v1beta1.AnnotationPaused]; found {
		return v1beta1.AnnotationPaused
	}
	return v1beta1.AnnotationClusterAPIPaused
}

func (m *Move) existingInDestination(ctx context.Context, f *fleet) (map[key]*object, error) {
	all, err := backup.List(ctx, m.Destination, m.Namespace, false)
	if err != nil {
		return nil, atDestination("%w", err)
	}
	existing := map[key]*object{}
	for _, o := range all {
		existing[keyOf(o)] = o
	}
	for _, secret := range f.ofKinds("Secret") {
		// The function List omits Secrets without Machinist's label. A Secret without this label may have the same name
		// as a Secret of the source.
		found := &object{}
		found.SetGroupVersionKind(secret.GroupVersionKind())
		switch err := m.Destination.Get(ctx, client.ObjectKeyFromObject(secret), found); {
		case err == nil:
			existing[keyOf(secret)] = found
		case !apierrors.IsNotFound(err):
			return nil, atDestination("read %s: %w", nameOf(secret), err)
		}
	}
	return existing, nil
}

// collision returns why an existing object prevents the creation of an object of the fleet, or "".
func (m *Move) collision(o, existing *object) string {
	switch {
	case existing == nil:
		return ""
	case existing.GetUID() == o.GetUID():
		return "source and destination are the same cluster"
	case existing.GetAnnotations()[movedFrom] == m.SourceID:
		return "" // An earlier run created the existing object.
	}
	switch o.GetKind() {
	case "Machine":
		// An earlier move, or a user, has already restored this Machine. If the Machine has another instance,
		// copyMachines reports the conflict.
		if o.Object["spec"].(map[string]any)["providerID"] == existing.Object["spec"].(map[string]any)["providerID"] {
			return ""
		}
	case "Secret", "MachineClass", "MachineHealthCheck", "MachineDisruptionBudget":
		if equality.Semantic.DeepEqual(o.Object["spec"], existing.Object["spec"]) &&
			equality.Semantic.DeepEqual(o.Object["data"], existing.Object["data"]) {
			return ""
		}
	}
	return fmt.Sprintf("the destination has another %s: rename or delete it", nameOf(o))
}
