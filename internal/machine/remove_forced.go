package machine

import (
	"context"
	"fmt"
	"time"

	"machinist.dev/machinist/internal/platform/wording"
)

// A force-deletion always ends. If the cloud does not delete the instance or cannot be reached, the Machine is deleted
// and the instance remains. Therefore, the controller first records what may remain, in an event and in the ConfigMap
// machinist-orphans. Orphan removal deletes it later.

const (
	// failingPatience is how long a force-deletion continues while the deletion of the instance fails. After this time,
	// the Machine is deleted, although its instance may still exist. The time is long enough for several attempts.
	failingPatience = 2 * time.Minute
	removalPatience = 10 * time.Minute
)

// orByForce adds a time limit to a step that deletes the instance. The limit applies only if the Machine is
// force-deleted.
func (r *removal) orByForce(step func(context.Context) (progress, error)) func(context.Context) (progress, error) {
	return func(ctx context.Context) (progress, error) {
		proceed, err := step(ctx)
		if err == nil && proceed == next || !forced(r.machine) || r.ForceDeleted == nil ||
			r.machine.DeletionTimestamp.IsZero() {
			return proceed, err
		}
		left := r.forcedEnd(err != nil || r.failing).Sub(r.now)
		if left > 0 {
			return proceed | r.after(left), err
		}
		return r.leaveInstance(ctx)
	}
}

func (r *removal) forcedEnd(failing bool) time.Time {
	var end time.Time
	r.states.update(r.machine, func(m *machineState) {
		t := &m.teardown
		if t.forcedSince.IsZero() {
			t.forcedSince = r.now
		}
		if end = t.forcedSince.Add(removalPatience); !failing {
			t.failingSince = time.Time{}
			return
		}
		if t.failingSince.IsZero() {
			t.failingSince = r.now
		}
		if early := t.failingSince.Add(failingPatience); early.Before(end) {
			end = early
		}
	})
	return end
}

// leaveInstance records that the instance, or a part of it, may remain. Then the deletion of the Machine continues. The
// Node is not deleted, because the instance may still run.
func (r *removal) leaveInstance(ctx context.Context) (progress, error) {
	if err := r.ForceDeleted.AddForceDeleted(ctx, r.machine, r.now); err != nil {
		return onError, fmt.Errorf("record what the machine may leave in the cloud: %w", err)
	}
	what := "An instance"
	if id := r.machine.Spec.ProviderID; id != "" {
		what = fmt.Sprintf("Instance %s, or a part of it,", wording.Truncate(id, 256))
	}
	r.warn(reasonInstanceLeft, "Delete", what+" may remain in the cloud, because the machine is force-deleted. The ConfigMap "+
		"machinist-orphans records it, and the provider deletes it when the cloud allows that.")
	r.instanceLeft = true
	return next, nil
}
