package machine

import (
	"context"
	"fmt"
	"time"

	"machinist.dev/machinist/internal/platform/wording"
)

// A force-deletion always ends. If the cloud does not delete the instance or cannot be reached, the Machine is deleted
// without it. This is the only exception to the rule that a Machine is deleted after its instance. So it is recorded
// first: an event and the ConfigMap machinist-orphans name what may remain, and orphan removal deletes it later.

const (
	// failingPatience is how long the deletion of an instance may fail before its force-deleted Machine is deleted
	// without it. It is long enough for more than one try.
	failingPatience = 2 * time.Minute
	// removalPatience is how long the deletion of the instance may take in total.
	removalPatience = 10 * time.Minute
)

// orByForce wraps a step of the instance's deletion so that it ends after some time if the Machine is force-deleted.
func (s *teardownStep) orByForce(step func(context.Context) (progress, error)) func(context.Context) (progress, error) {
	return func(ctx context.Context) (progress, error) {
		proceed, err := step(ctx)
		if err == nil && proceed == next || !s.forced() || s.ForceDeleted == nil || s.machine.DeletionTimestamp.IsZero() {
			return proceed, err
		}
		left := s.forcedEnd(err != nil || s.failing).Sub(s.now)
		if left > 0 {
			return proceed | s.after(left), err
		}
		return s.leaveInstance(ctx)
	}
}

// forcedEnd returns when a force-deletion stops waiting for the deletion of the instance.
func (s *teardownStep) forcedEnd(failing bool) time.Time {
	var end time.Time
	s.states.update(s.machine, func(m *machineState) {
		t := &m.teardown
		if t.forcedSince.IsZero() {
			t.forcedSince = s.now
		}
		if end = t.forcedSince.Add(removalPatience); !failing {
			t.failingSince = time.Time{}
			return
		}
		if t.failingSince.IsZero() {
			t.failingSince = s.now
		}
		if early := t.failingSince.Add(failingPatience); early.Before(end) {
			end = early
		}
	})
	return end
}

// leaveInstance records that the instance, or a part of it, may remain, and lets the deletion of the Machine continue.
// The Node stays, because the instance may still run.
func (s *teardownStep) leaveInstance(ctx context.Context) (progress, error) {
	if err := s.ForceDeleted.AddForceDeleted(ctx, s.machine, s.now); err != nil {
		return onError, fmt.Errorf("record what the machine may leave in the cloud: %w", err)
	}
	what := "An instance"
	if id := s.machine.Spec.ProviderID; id != "" {
		what = fmt.Sprintf("Instance %s, or a part of it,", wording.Truncate(id, 256))
	}
	s.warn(reasonInstanceLeft, "Delete", what+" may remain in the cloud, because the machine is force-deleted. The ConfigMap "+
		"machinist-orphans records it, and the provider deletes it when the cloud allows that.")
	s.instanceLeft = true
	return next, nil
}
