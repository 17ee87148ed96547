package machineset

import (
	"context"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/bounds"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// capacityPoll is how often a set whose deployment has as many machines as it may have checks whether it has fewer:
// the set gets no events of other sets' machines.
const capacityPoll = time.Second

// noCapacity is the message of a set that waits for capacity.
const noCapacity = "The deployment has as many machines as replicas + maxSurge allow. The set creates more when its other sets have fewer."

// readCapacity finds out by how many the set's replicas exceed what replicas + maxSurge of the deployment leave to
// it. The deployment kept that bound when it raised the set's replicas, but another set may have more machines than
// the deployment knew, because their deletion is blocked (rule set-keeps-deployment-available).
func (p *pass) readCapacity(ctx context.Context) error {
	s, d := &p.state, p.deployment
	s.OverCapacity = 0
	// People may scale the sets of a paused deployment as they like.
	if d == nil || d.Spec.Paused || !d.DeletionTimestamp.IsZero() || p.live >= int(s.Set.ReplicasOrDefault()) {
		return nil
	}
	replicas := max(0, d.ReplicasOrDefault())
	limits, err := bounds.Of(d)
	if err != nil {
		return nil // An invalid strategy blocks nothing.
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
		machines, err := p.cachedMachines(ctx, sibling, nil)
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

func countLive(machines []*v1beta1.Machine) (n int) {
	for _, m := range machines {
		if machinestate.Live(m) {
			n++
		}
	}
	return n
}
