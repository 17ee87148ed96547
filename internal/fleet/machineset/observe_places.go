package machineset

import (
	"cmp"
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
	s := &p.state
	s.Places = NewPlaces(s.Set, p.deployment)
	s.NextRebalancing = p.known.rebalancing.until
	if s.Places.Placement == nil {
		return nil
	}
	if p.deployment != nil {
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
	siblings, err := p.siblings(ctx)
	if err != nil {
		return err
	}
	for _, sibling := range siblings {
		machines, err := p.cachedMachines(ctx, sibling, nil)
		if err != nil {
			return err
		}
		p.state.AddOtherSet(p.state.Set, sibling, machines)
	}
	return nil
}

// NewPlaces returns what a set knows before the machines of other sets and the capacity of classes are read. The
// deployment is nil if the set belongs to none.
func NewPlaces(set *v1beta1.MachineSet, d *v1beta1.MachineDeployment) Places {
	k := Places{Placement: set.Spec.Placement, Replicas: int(set.ReplicasOrDefault())}
	if d != nil {
		k.Placement = cmp.Or(d.Spec.Placement, set.Spec.Placement)
		k.Replicas, k.RebalancePaused = int(max(0, d.ReplicasOrDefault())), d.Spec.Paused
		k.OthersLeave = ReplacesOtherSets(d)
	}
	k.InOtherSets, k.Replaced = map[placement.Choice]int{}, map[placement.Choice]int{}
	k.WithoutInstance, k.WaitingInOtherSets = map[string]int{}, map[placement.Choice]int{}
	return k
}

// AddOtherSet counts the machines of another set of the deployment.
func (k *Places) AddOtherSet(set, other *v1beta1.MachineSet, machines []*v1beta1.Machine) {
	if other.DeletionTimestamp.IsZero() && revisionOf(other) > revisionOf(set) {
		k.OthersLeave = false
	}
	for _, m := range machines {
		if !machinestate.IsLive(m) {
			continue
		}
		place := places.Of(m, other.Spec.Placement, k.Placement)
		k.InOtherSets[place]++
		if isReplaced(m) {
			k.Replaced[place]++
		}
		if places.Pending(m) {
			k.WithoutInstance[place.ClassName]++
		}
		if places.AwaitsCapacity(m) {
			k.WaitingInOtherSets[place]++
		}
	}
}

// setsOfClass returns the sets whose placement contains the class.
func (r *Reconciler) setsOfClass(ctx context.Context, o client.Object) []reconcile.Request {
	return r.sets(ctx, o, func(set *v1beta1.MachineSet) bool {
		return set.Spec.Placement.DomainOf(o.GetName()) != ""
	})
}
