package simulation

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// hasNone returns a condition that holds if the control cluster has no object of a kind.
func hasNone(kind string) func(*World) bool {
	return func(w *World) bool { return len(w.control.Snapshot(v1beta1.GroupVersion.WithKind(kind))) == 0 }
}

// applyClassAgain applies a class that was deleted with its fleet, as a tool does that applies a folder repeatedly. It
// does nothing if the new machines have instances of the deleted class, which still serves them.
func applyClassAgain(name string) Action {
	return Action{Name: fmt.Sprintf("apply class %s again", name),
		After: func(w *World) bool {
			return scaled(w) || !slices.ContainsFunc(w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineClass")),
				func(o client.Object) bool { return o.GetName() == name })
		},
		Do: func(ctx context.Context, _ *World, c client.Client) error {
			err := c.Create(ctx, classOf(name, "plain"))
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		}}
}
