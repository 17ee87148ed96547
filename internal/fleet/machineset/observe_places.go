package machineset

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/placement"
	"machinist.dev/machinist/internal/fleet/placement/places"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// readPlaces reads where the machines of the deployment's other sets are, and the capacity of the classes.
func (p *pass) readPlaces(ctx context.Context) error {
	s, d := &p.state, p.deployment
	s.Places = Places{Placement: s.Set.Spec.Placement, Replicas: int(s.Set.ReplicasOrDefault()),
		NextRebalancing: p.known.rebalancing.until}
	if d != nil && d.Spec.Placement != nil {
		s.Places.Placement = d.Spec.Placement
	}
	if s.Places.Placement == nil {
		return nil
	}
	if d != nil {
		s.Places.Replicas, s.RebalancePaused = int(max(0, d.ReplicasOrDefault())), d.Spec.Paused
		if err := p.countOtherSets(ctx); err != nil {
			return err
		}
	}
	var err error
	s.Capacity, err = places.CapacityOf(ctx, p.Client, p.key.Namespace, s.Set.Spec.Placement)
	if err != nil || p.live >= int(s.Set.ReplicasOrDefault()) {
		return err
	}
	return p.confirmMissing(ctx)
}

// confirmMissing reads the classes that the cache lacks from the API server. A user often creates the classes together
// with the deployment. Without this read, all machines would be created in the domains whose classes the cache shows
// first.
func (p *pass) confirmMissing(ctx context.Context) error {
	for name, c := range p.state.Capacity {
		if !c.Missing {
			continue
		}
		live, err := places.CapacityOfClass(ctx, p.LiveReader, p.key.Namespace, name)
		if err != nil {
			return err
		}
		p.state.Capacity[name] = live
	}
	return nil
}

// ReplacesOtherSets reports whether the deployment replaces the machines of older sets. With the strategy InPlace,
// older sets hand their machines over to the newest set instead.
func ReplacesOtherSets(d *v1beta1.MachineDeployment) bool {
	return !d.Spec.Paused && d.Spec.Strategy.TypeOrDefault() != v1beta1.StrategyInPlace
}

func (p *pass) countOtherSets(ctx context.Context) error {
	s := &p.state
	siblings, err := p.siblings(ctx)
	if err != nil {
		return err
	}
	s.InOtherSets, s.Replaced = map[placement.Choice]int{}, map[placement.Choice]int{}
	s.OthersLeave = ReplacesOtherSets(p.deployment)
	s.WithoutInstance, s.WaitingInOtherSets = map[string]int{}, map[placement.Choice]int{}
	for _, sibling := range siblings {
		machines, err := p.cachedMachines(ctx, sibling, nil)
		if err != nil {
			return err
		}
		if sibling.DeletionTimestamp.IsZero() && revisionOf(sibling) > revisionOf(s.Set) {
			s.OthersLeave = false
		}
		for _, m := range machines {
			if !machinestate.IsLive(m) {
				continue
			}
			place := places.Of(m, sibling.Spec.Placement, s.Places.Placement)
			s.InOtherSets[place]++
			if isReplaced(m) {
				s.Replaced[place]++
			}
			if places.Pending(m) {
				s.WithoutInstance[place.ClassName]++
			}
			if places.AwaitsCapacity(m) {
				s.WaitingInOtherSets[place]++
			}
		}
	}
	return nil
}

// setsOfClass returns the sets whose placement contains the class.
func (r *Reconciler) setsOfClass(ctx context.Context, o client.Object) []reconcile.Request {
	return r.sets(ctx, o, func(set *v1beta1.MachineSet) bool {
		return set.Spec.Placement.DomainOf(o.GetName()) != ""
	})
}
