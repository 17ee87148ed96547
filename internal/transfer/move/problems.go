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

// problems returns why the fleet cannot be moved as it is.
func (m *Move) problems(ctx context.Context, f *fleet) (problems []string, err error) {
	for _, o := range f.objects {
		if to := moving(o); to != "" && to != m.To {
			problems = append(problems, fmt.Sprintf("%s is being moved to cluster %s", nameOf(o), to))
			continue
		}
		if o.GetKind() != "Machine" || moving(o) != "" {
			continue
		}
		machine, err := machineOf(o)
		switch {
		case err != nil:
			return nil, err
		case machine.Spec.ClassRef == nil:
			problems = append(problems, fmt.Sprintf("%s has no class, and only a class can permit that its instance is taken "+
				"over", nameOf(o)))
		case machinestate.Paused(machine):
			problems = append(problems, fmt.Sprintf("%s is paused, and its instance would not be taken over: take the "+
				"annotation %s off", nameOf(o), pausedBy(machine)))
		}
	}
	there, err := m.atDestination(ctx, f)
	if err != nil {
		return nil, err
	}
	for _, o := range f.objects {
		if why := m.collision(o, there[keyOf(o)]); why != "" {
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

// atDestination returns what the destination has under the names of the fleet.
func (m *Move) atDestination(ctx context.Context, f *fleet) (map[key]*object, error) {
	all, err := backup.List(ctx, m.Destination, m.Namespace, false)
	if err != nil {
		return nil, atDestination("%w", err)
	}
	there := map[key]*object{}
	for _, o := range all {
		there[keyOf(o)] = o
	}
	for _, secret := range f.of("Secret") {
		// One without the label that says what it is for is in the way as well.
		found := &object{}
		found.SetGroupVersionKind(secret.GroupVersionKind())
		switch err := m.Destination.Get(ctx, client.ObjectKeyFromObject(secret), found); {
		case err == nil:
			there[keyOf(secret)] = found
		case !apierrors.IsNotFound(err):
			return nil, atDestination("read %s: %w", nameOf(secret), err)
		}
	}
	return there, nil
}

// collision says why an object of the fleet cannot be at the destination beside what has its name there, if anything.
func (m *Move) collision(o, there *object) string {
	switch {
	case there == nil:
		return ""
	case there.GetUID() == o.GetUID():
		return "source and destination are the same cluster"
	case there.GetAnnotations()[movedFrom] == m.From:
		return "" // An earlier run made it.
	}
	switch o.GetKind() {
	case "Machine":
		// Restored by hand, or by an older move: the copy tells when it has another instance.
		if o.Object["spec"].(map[string]any)["providerID"] == there.Object["spec"].(map[string]any)["providerID"] {
			return ""
		}
	case "Secret", "MachineClass", "MachineHealthCheck", "MachineDisruptionBudget":
		if equality.Semantic.DeepEqual(o.Object["spec"], there.Object["spec"]) &&
			equality.Semantic.DeepEqual(o.Object["data"], there.Object["data"]) {
			return ""
		}
	}
	return fmt.Sprintf("the destination has another %s", nameOf(o))
}
