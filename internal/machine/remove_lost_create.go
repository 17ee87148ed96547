package machine

import (
	"context"
	"errors"
	"fmt"

	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

// findLost looks for an instance that was created but never recorded in the status. An instance is lost in this way
// if the answer of Create was lost, the process was killed, or the Machine was deleted at that moment. The instance
// may already be a Node with pods, so it is deleted like any other instance. If the cloud does not show an instance
// yet, a later step of the deletion waits for the settle time.
func (r *removal) findLost(ctx context.Context) (progress, error) {
	if r.machine.Status.Instance != nil || r.machine.IsReplacing() || r.neverCreated() || instanceUnrecorded(r.machine) {
		return next, nil
	}
	inputs, err := r.Classes.ResolveForDeletion(ctx, r.machine)
	if _, missing := errors.AsType[*resolve.Error](err); missing {
		return next, nil // The deletion of the instance reports what is missing.
	}
	if err != nil {
		return onError, fmt.Errorf("resolve how to find the instance: %w", err)
	}
	if never, err := r.neverLaunched(ctx, inputs); err != nil || never {
		return onError.unless(never), err
	}
	if proceed := r.awaitTry(inputs); proceed != next {
		return proceed, nil
	}
	instance, err := r.states.get(r.machine).teardown.foundInstance, error(nil)
	if instance == nil {
		instance, err = r.getInstance(ctx, inputs)
	}
	switch {
	case provider.IsNotFound(err):
		return next, nil
	case err != nil:
		return r.deleteFailed(err, inputs), nil
	case instance.ProviderID == "" || instance.OwnedBy(r.ClusterID, identity(r.machine)) != nil ||
		r.isOldInstance(instance):
		return next, nil
	}
	return r.recordInstance(ctx, inputs, instance, false)
}
