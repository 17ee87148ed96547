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

// A target cluster that refuses the credentials of the processes is unreachable for them and for nobody else:
// machines join it.

// refusedCredentialScenarios are those of outages, with credentials that the target cluster refuses for a while.
func refusedCredentialScenarios(impatient func(*v1beta1.MachineDeployment)) []Scenario {
	return []Scenario{
		{Name: "target-refuses", Group: HealthChecks, Controllers: Health | OutdatedTaints, Base: fleet(4, "a"),
			Script: refusingCredentials(outages(toTarget))},
		{Name: "change-while-target-refuses", Group: HealthChecks, Controllers: AllControllers,
			Base: fleet(2, "with-token", impatient), Script: refusingCredentials(changesInOutage(toTarget))},
	}
}

// refusingCredentials makes the outages of a script ones in which the credentials are refused.
func refusingCredentials(script func(*rand.Rand) []Action) func(*rand.Rand) []Action {
	return func(r *rand.Rand) []Action {
		actions := script(r)
		for i := range actions {
			do := actions[i].Do
			actions[i].Do = func(ctx context.Context, w *World, c client.Client) error {
				target := &w.safety.links[toTarget]
				was := target.down()
				err := do(ctx, w, c)
				if target.down() && !was {
					w.logf("that is, it refuses the credentials")
					target.refuses, target.everyone, target.step = true, false, w.steps
				}
				return err
			}
		}
		return actions
	}
}

// errRefused is what a cluster answers that refuses the credentials.
var errRefused = fmt.Errorf("%w: %w", reachability.ErrCredentialsRefused, apierrors.NewUnauthorized("Unauthorized"))

// mayEndUnseen judges the end of a machine's instance while the target cluster refuses the credentials: what runs on it
// cannot be known, unless it was drained before, or the pass had read that before.
func (o *oracle) mayEndUnseen(in *instance, m *v1beta1.Machine) {
	if f := o.world.top(); f != nil && f.step < o.world.safety.links[toTarget].step {
		return
	}
	drained := meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionDrained)
	if l := o.world.safety.links[toTarget]; l.refuses && l.down() && !drained &&
		!o.hasEver(m.UID, v1beta1.AnnotationForceDelete) {
		o.breach("I7", "instance %s of machine %s is removed while the target cluster refuses the credentials", in.ProviderID,
			in.MachineKey)
	}
}
