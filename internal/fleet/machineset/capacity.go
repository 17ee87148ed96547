package machineset

import (
	"context"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/bounds"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// capacityPoll is the interval at which a set without free capacity checks whether the other sets of its deployment
// now have fewer machines. The set gets no events of machines in these sets.
const capacityPoll = time.Second

// noCapacity is the message of a set that cannot create more machines now.
const noCapacity = "The deployment has as many machines as replicas + maxSurge allow. " +
	"This set creates more when the other sets of the deployment have fewer."

// readCapacity determines for how many of the set's replicas no machine may be created now, because the deployment
// has too many machines. All sets of the deployment together may have at most replicas + maxSurge machines. The
// deployment already considered this limit when it raised the set's replicas. But if the deletion of machines is
// blocked, another set may have more machines than the deployment expected (rule set-keeps-deployment-available).
func (p *pass) readCapacity(ctx context.Context) error {
	s, d := &p.state, p.deployment
	s.OverCapacity = 0
	// If a deployment is paused, administrators may scale its sets without this limit.
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
		used := countLive(machines)
		if sibling.DeletionTimestamp.IsZero() {
			used = max(used, int(sibling.ReplicasOrDefault()))
		}
		capacity -= used
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
