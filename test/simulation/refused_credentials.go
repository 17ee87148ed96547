package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/reachability"
)

// If the target cluster rejects the credentials of the processes, it is unreachable for them. Machines can still join.

// refusedCredentialScenarios returns scenarios in which the target cluster rejects the credentials for a while.
func refusedCredentialScenarios(impatient func(*v1beta1.MachineDeployment)) []Scenario {
	return []Scenario{
		{Name: "target-refuses", Group: HealthChecks, Controllers: Health | OutdatedTaints, Base: fleet(4, "a"),
			Script: refusingCredentials(outages(toTarget))},
		{Name: "change-while-target-refuses", Group: HealthChecks, Controllers: AllControllers,
			Base: fleet(2, "with-token", impatient), Script: refusingCredentials(changesInOutage(toTarget))},
	}
}

// refusingCredentials changes a script: instead of each outage, the API server rejects the credentials for the same
// time.
func refusingCredentials(script func(*rand.Rand) []Action) func(*rand.Rand) []Action {
	return func(r *rand.Rand) []Action {
		actions := script(r)
		for i := range actions {
			do := actions[i].Do
			actions[i].Do = func(ctx context.Context, w *World, c client.Client) error {
				target := &w.safety.links[toTarget]
				wasDown := target.down()
				err := do(ctx, w, c)
				if target.down() && !wasDown {
					w.logf("the target cluster refuses the credentials")
					target.refuses, target.forAll, target.step = true, false, w.steps
				}
				return err
			}
		}
		return actions
	}
}

var errCredentialsRefused = fmt.Errorf("%w: %w", reachability.ErrCredentialsRefused,
	apierrors.NewUnauthorized("Unauthorized"))

// mayDeleteUnseen checks whether an instance may be deleted while the target cluster rejects the credentials, so that
// the process cannot see the pods. Either the machine was drained before, or the reconciliation began before the
// rejection.
func (o *oracle) mayDeleteUnseen(in *instance, m *v1beta1.Machine) {
	if f := o.world.top(); f != nil && f.step < o.world.safety.links[toTarget].step {
		return
	}
	drained := meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionDrained)
	if l := o.world.safety.links[toTarget]; l.refuses && l.down() && !drained &&
		!o.mayHave(m.UID, v1beta1.AnnotationForceDelete) {
		o.breach("I7", "instance %s of machine %s is removed while the target cluster refuses the credentials", in.ProviderID,
			in.MachineKey)
	}
}
