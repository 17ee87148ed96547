package machine

import (
	"context"
	"fmt"
	"time"

	"machinist.dev/machinist/internal/platform/wording"
)

// A deletion by force always ends. Where the cloud does not remove the instance, or cannot be asked, the Machine goes
// without it. That is the only exception to the rule that a Machine goes after its instance, so it is recorded before:
// an event and the ConfigMap machinist-orphans name what may remain, and orphan collection removes it.

const (
	// failingPatience is how long the removal of an instance may fail before a Machine that is deleted by force goes
	// without it: enough for more than one try.
	failingPatience = 2 * time.Minute
	// removalPatience is how long the removal may take in all.
	removalPatience = 10 * time.Minute
)

// orByForce returns a step of the removal of the instance that ends after some time if the Machine is deleted by force.
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

// forcedEnd is when a deletion by force goes on without the removal of the instance.
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

// leaveInstance records that the instance, or a part of it, may remain, and lets the Machine go without it. Its Node
// stays: the instance may run.
func (s *teardownStep) leaveInstance(ctx context.Context) (progress, error) {
	if err := s.ForceDeleted.AddForceDeleted(ctx, s.machine, s.now); err != nil {
		return onError, fmt.Errorf("record what the machine may leave at the cloud: %w", err)
	}
	what := "An instance"
	if id := s.machine.Spec.ProviderID; id != "" {
		what = fmt.Sprintf("Instance %s, or a part of it,", wording.Truncate(id, 256))
	}
	s.warn(reasonInstanceLeft, "Delete", what+" may remain at the cloud: the machine is deleted by force. The ConfigMap "+
		"machinist-orphans names it, and orphan collection deletes it when the cloud allows that.")
	s.instanceLeft = true
	return next, nil
}
