package machineset

import (
	"context"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/bounds"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// capacityPoll is the time after which a set that must not create more machines checks again. The deletion of a machine
// in another set makes room for a new machine, but its event does not trigger this set.
const capacityPoll = time.Second

// noCapacity is the message of a set that cannot create more machines now.
const noCapacity = "The deployment has as many machines as replicas + maxSurge allow. " +
	"This set creates more when the other sets of the deployment have fewer."

// readCapacity sets State.OverCapacity. The sets of a deployment may have at most replicas + maxSurge machines in
// total. While the deployment has this number of machines, a set must not create its missing machines. A deployment can
// have too many machines if a set cannot delete a machine (rule set-keeps-deployment-available).
func (p *pass) readCapacity(ctx context.Context) error {
	s, d := &p.state, p.deployment
	s.OverCapacity = 0
	// The sets of a paused deployment may be scaled without this limit.
	if d == nil || d.Spec.Paused || !d.DeletionTimestamp.IsZero() || p.live >= int(s.Set.ReplicasOrDefault()) {
		return nil
	}
	replicas := max(0, d.ReplicasOrDefault())
	limits, err := bounds.ForDeployment(d)
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
		if machinestate.IsLive(m) {
			n++
		}
	}
	return n
}
