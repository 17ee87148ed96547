package machinedeployment

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/autoscaling"
	"machinist.dev/machinist/internal/fleet/disruption"
)

// storeReplicas writes spec.replicas of a deployment that has none: it was applied without the field, and no webhook
// stored the number. The event of the write triggers the next pass. Without a stored value the API server does not
// serve the subresource scale.
func (p *pass) storeReplicas(ctx context.Context, sets []*v1beta1.MachineSet) error {
	changed := p.deployment.DeepCopy()
	replicas := autoscaling.Replicas(p.deployment.Annotations, currentReplicas(sets))
	changed.Spec.Replicas = &replicas
	if err := p.Client.Patch(ctx, changed, client.MergeFromWithOptions(p.deployment,
		client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("store spec.replicas, which is left out: %w", err)
	}
	return nil
}

// currentReplicas returns the replicas that the sets of a deployment were last sized for, nil without a set.
func currentReplicas(sets []*v1beta1.MachineSet) *int32 {
	if len(sets) == 0 {
		return nil
	}
	newest := slices.MaxFunc(sets, func(a, b *v1beta1.MachineSet) int { return cmp.Compare(revisionOf(a), revisionOf(b)) })
	replicas := sizedForOf(newest)
	if replicas == Unknown {
		// Only then one set has replicas, and no rollout has begun.
		replicas = 0
		for _, set := range sets {
			replicas += max(0, set.ReplicasOrDefault()-disruption.ExchangeSurge(set))
		}
	}
	return &replicas
}
