package simulation

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

func hasNone(kind string) func(*World) bool {
	return func(w *World) bool { return len(w.control.Snapshot(v1beta1.GroupVersion.WithKind(kind))) == 0 }
}

// applyClassAgain returns an action that creates a class again after it was deleted together with its fleet, like tools
// that apply a folder repeatedly. The action does nothing while the deleted class still exists, because machines with
// instances use it.
func applyClassAgain(name string) Action {
	return Action{Name: fmt.Sprintf("apply class %s again", name),
		Condition: func(w *World) bool {
			return isScaled(w) || !slices.ContainsFunc(w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineClass")),
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
