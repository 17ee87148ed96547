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

// storeReplicas writes spec.replicas if no webhook has set it, because the API server needs it for the scale
// subresource. The event about this write triggers the next pass.
func (p *pass) storeReplicas(ctx context.Context, sets []*v1beta1.MachineSet) error {
	changed := p.deployment.DeepCopy()
	replicas := autoscaling.Replicas(p.deployment.Annotations, currentReplicas(sets))
	changed.Spec.Replicas = &replicas
	if err := p.Client.Patch(ctx, changed, client.MergeFromWithOptions(p.deployment,
		client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("store the missing spec.replicas: %w", err)
	}
	return nil
}

func currentReplicas(sets []*v1beta1.MachineSet) *int32 {
	if len(sets) == 0 {
		return nil
	}
	newest := slices.MaxFunc(sets, func(a, b *v1beta1.MachineSet) int { return cmp.Compare(revisionOf(a), revisionOf(b)) })
	replicas := sizedForOf(newest)
	if replicas == UnknownSize {
		// No rollout has begun, and only one set has replicas.
		replicas = 0
		for _, set := range sets {
			replicas += max(0, set.ReplicasOrDefault()-disruption.ReplacementSurge(set))
		}
	}
	return &replicas
}
