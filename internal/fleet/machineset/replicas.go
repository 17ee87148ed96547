package machineset

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/autoscaling"
)

// errReplicasStored ends a pass that stored spec.replicas. The event about the write triggers the next pass.
var errReplicasStored = errors.New("spec.replicas was stored")

func (p *pass) storeReplicas(ctx context.Context, set *v1beta1.MachineSet) error {
	changed := set.DeepCopy()
	replicas := autoscaling.Replicas(set.Annotations, currentReplicas(set))
	changed.Spec.Replicas = &replicas
	if err := p.Client.Patch(ctx, changed, client.MergeFromWithOptions(set,
		client.MergeFromWithOptimisticLock{})); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("store the missing spec.replicas: %w", err)
	}
	return errReplicasStored
}

func currentReplicas(set *v1beta1.MachineSet) *int32 {
	if set.Status.ObservedGeneration == 0 {
		return nil
	}
	return &set.Status.Replicas
}
