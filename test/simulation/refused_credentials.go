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

// If the target cluster rejects the credentials of the processes, it is unreachable for the processes. The cluster is
// still reachable for other clients, so machines can join.

// refusedCredentialScenarios returns scenarios with outages in which the target cluster rejects the credentials for a
// while.
func refusedCredentialScenarios(impatient func(*v1beta1.MachineDeployment)) []Scenario {
	return []Scenario{
		{Name: "target-refuses", Group: HealthChecks, Controllers: Health | OutdatedTaints, Base: fleet(4, "a"),
			Script: refusingCredentials(outages(toTarget))},
		{Name: "change-while-target-refuses", Group: HealthChecks, Controllers: AllControllers,
			Base: fleet(2, "with-token", impatient), Script: refusingCredentials(changesInOutage(toTarget))},
	}
}

// refusingCredentials replaces the outages in a script by times in which the cluster rejects the credentials.
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

// errCredentialsRefused is the error of a cluster that rejects the credentials.
var errCredentialsRefused = fmt.Errorf("%w: %w", reachability.ErrCredentialsRefused,
	apierrors.NewUnauthorized("Unauthorized"))

// mayDeleteUnseen checks whether an instance may be deleted while the target cluster rejects the credentials. The
// process cannot see the pods on the instance. So either the machine must have been drained before, or the pass
// must have begun before the cluster rejected the credentials.
func (o *oracle) mayDeleteUnseen(in *instance, m *v1beta1.Machine) {
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
