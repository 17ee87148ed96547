package machine

import (
	"context"
	"errors"
	"fmt"

	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

// findLost looks for an instance that was created but never recorded in the status. This happens if the answer of
// Create was lost, the process was killed, or the Machine was deleted at that moment. The instance may already be a
// Node with pods, so it is deleted like any other instance. If the cloud does not show an instance yet, the deletion
// waits for the settle time later.
func (s *teardownStep) findLost(ctx context.Context) (progress, error) {
	if s.machine.Status.Instance != nil || s.machine.Replacing() || s.neverCreated() {
		return next, nil
	}
	if instanceUnrecorded(s.machine) {
		return s.adoption.findUnrecordedInstance(ctx)
	}
	inputs, err := s.Classes.ResolveForDeletion(ctx, s.machine)
	if _, missing := errors.AsType[*resolve.Error](err); missing {
		return next, nil // The deletion of the instance reports what is missing.
	}
	if err != nil {
		return onError, fmt.Errorf("resolve how to find the instance: %w", err)
	}
	if never, err := s.neverLaunched(ctx, inputs); err != nil || never {
		return onError.unless(never), err
	}
	if proceed := s.awaitTry(inputs); proceed != next {
		return proceed, nil
	}
	instance, err := s.states.get(s.machine).teardown.found, error(nil)
	if instance == nil {
		instance, err = s.instance.get(ctx, inputs)
	}
	switch {
	case provider.IsNotFound(err):
		return next, nil
	case err != nil:
		return s.deleteFailed(err, inputs), nil
	case instance.ProviderID == "" || instance.OwnedBy(s.ClusterID, identity(s.machine)) != nil ||
		s.instance.isOldInstance(instance):
		return next, nil
	}
	return s.launch.recordInstance(ctx, inputs, instance)
}
