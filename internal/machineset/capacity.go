package machineset

import (
	"context"
	"time"

	"machinist.dev/machinist/internal/rollout/bounds"
)

// roomPoll is how often a set whose deployment has as many machines as it may looks whether it has room: no event of another
// set's machines tells it.
const capacityPoll = time.Second

// noRoom is what a set says that waits for room.
const noCapacity = "The other sets of the deployment leave no room for more machines yet."

// countRoom finds out whether the deployment has room for as many machines as the set was told to have. It was told by what
// the deployment knew then, and another set may have machines more than that, which it keeps (S-16).
func (p *pass) readCapacity(ctx context.Context) error {
	s, d := &p.state, p.deployment
	s.OverCapacity = 0
	// While a deployment is paused, its sets are whoever's scales them.
	if d == nil || d.Spec.Paused || !d.DeletionTimestamp.IsZero() || countLive(s.Machines) >= int(s.Set.ReplicasOrDefault()) {
		return nil
	}
	replicas := max(0, d.ReplicasOrDefault())
	limits, err := bounds.Resolve(d.Spec.Strategy, replicas)
	if err != nil {
		return nil // What cannot be read must not hold anything up.
	}
	siblings, err := p.siblings(ctx)
	if err != nil {
		return err
	}
	if len(siblings) == 0 {
		return nil
	}
	capacity := int(replicas + limits.MaxSurge)
	for _, sibling := range siblings {
		machines, err := p.cachedMachines(ctx, sibling)
		if err != nil {
			return err
		}
		has := countLive(machines)
		if sibling.DeletionTimestamp.IsZero() {
			has = max(has, int(sibling.ReplicasOrDefault()))
		}
		capacity -= has
	}
	s.OverCapacity = max(0, int(s.Set.ReplicasOrDefault())-capacity)
	return nil
}
