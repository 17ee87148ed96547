package machine

import (
	"context"
	"errors"
	"fmt"

	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

// findLost looks, before anything is taken down, for an instance that was made and never described in the status: the
// answer was lost, the process was killed, or the Machine was deleted at that moment. It may have become a Node by
// now, with pods on it, so it goes like any other. Where nothing is found nothing is concluded: the settling time at
// the end is for what does not show yet.
func (s *teardownStep) findLost(ctx context.Context) (progress, error) {
	if s.machine.Status.Instance != nil || s.machine.Replacing() || s.neverCreated() {
		return next, nil
	}
	if undescribed(s.machine) {
		return s.adoption.findUndescribed(ctx)
	}
	inputs, err := s.Classes.ResolveForDeletion(ctx, s.machine)
	if _, missing := errors.AsType[*resolve.Error](err); missing {
		return next, nil // The deletion of the instance reports it.
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
		s.instance.replaced(instance):
		return next, nil
	}
	return s.launch.recordInstance(ctx, inputs, instance)
}
