package machineset

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/placement"
	"machinist.dev/machinist/internal/fleet/placement/places"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/wording"
)

// Places is the part of a State that decides about spec.placement.
type Places struct {
	// Placement is the placement that counts for surplus machines: that of the deployment, or else that of the set. It
	// is nil if neither has one.
	Placement *v1beta1.Placement
	// Replicas is the number of machines to distribute over the domains.
	Replicas int
	// InOtherSets counts the live machines in the deployment's other sets. Replaced counts the machines among them that
	// are marked for replacement or deletion.
	InOtherSets, Replaced map[placement.Choice]int
	// OthersLeave is true if a rollout to this set replaces the machines of the other sets. It is false if the strategy is
	// InPlace, because the other sets then hand their machines over to this set.
	OthersLeave bool
	// WaitingInOtherSets counts the machines in other sets that wait for capacity.
	WaitingInOtherSets map[placement.Choice]int
	// WithoutInstance counts the machines without an instance in the deployment's other sets, by class.
	WithoutInstance map[string]int
	// Capacity is what is known about the capacity of the classes, without the field Pending.
	Capacity map[string]placement.Capacity
	// RebalancePaused is true while the deployment is paused. NextRebalancing ends the backoff after a rebalancing whose
	// replacement found no capacity. The retry times of the classes do not suffice, because the clock of the provider may
	// differ.
	RebalancePaused bool
	NextRebalancing time.Time
}

// placeOf returns the place of a machine of the set. A class that the set's placement does not contain may have a
// domain in the deployment's placement.
func (s *State) placeOf(m *v1beta1.Machine) placement.Choice {
	return places.Of(m, s.Set.Spec.Placement, s.Places.Placement)
}

// isReplaced reports whether another machine takes the machine's place.
func isReplaced(m *v1beta1.Machine) bool {
	return machinestate.HasReplaceAnnotation(m) || machinestate.MarkedForDeletion(m)
}

// planner returns the planner for the machines that the set creates. A rollout replaces the machines of the other sets,
// so only the machines of the newest set must be balanced in the end.
func (s *State) planner() *placement.Planner {
	counted, leaving := make(map[placement.Choice]int, len(s.InOtherSets)), map[string]int{}
	for place, n := range s.InOtherSets {
		if s.OthersLeave {
			leaving[place.Domain] += n
		} else {
			counted[place] = n - s.Replaced[place]
		}
	}
	keepsMarked := s.rebalanceFailed()
	return s.newPlanner(s.Set.Spec.Placement, counted, leaving, func(m *v1beta1.Machine) bool {
		return !isReplaced(m) || keepsMarked && isRebalanced(m)
	})
}

// surplusPlanner returns the planner for the machines that the set deletes. During a rollout, the newest set must stay
// balanced without the machines of the other sets, and the other sets give way to it.
func (s *State) surplusPlanner() *placement.Planner {
	counted := map[placement.Choice]int{}
	if !s.OthersLeave {
		maps.Copy(counted, s.InOtherSets)
	}
	return s.newPlanner(s.Places.Placement, counted, nil, func(*v1beta1.Machine) bool { return true })
}

func (s *State) newPlanner(by *v1beta1.Placement, counted map[placement.Choice]int,
	leaving map[string]int, counts func(*v1beta1.Machine) bool) *placement.Planner {
	own := make(map[string]int)
	withoutInstance, waiting := maps.Clone(s.WithoutInstance), maps.Clone(s.WaitingInOtherSets)
	if withoutInstance == nil {
		withoutInstance, waiting = map[string]int{}, map[placement.Choice]int{}
	}
	for _, m := range s.Machines {
		if !machinestate.IsLive(m) {
			continue
		}
		place := s.placeOf(m)
		if places.Pending(m) {
			withoutInstance[place.ClassName]++
		}
		if places.AwaitsCapacity(m) {
			waiting[place]++
		}
		if counts(m) {
			counted[place]++
			own[place.Domain]++
		}
	}
	capacity := make(map[string]placement.Capacity, len(s.Capacity))
	for class, c := range s.Capacity {
		c.Pending = withoutInstance[class]
		capacity[class] = c
	}
	if s.Set.Spec.Placement != nil {
		places.AddUnlaunchable(capacity, s.unsteady())
	}
	return placement.New(placement.State{Placement: by, Replicas: s.Places.Replicas, Machines: counted, Leaving: leaving,
		Waiting: waiting, Own: own,
		Capacity: capacity, Now: s.Now})
}

// plannerFor returns the planner that counts all creations and moves of this plan.
func (p *Plan) plannerFor(s State) *placement.Planner {
	if p.planner == nil {
		p.planner = s.planner()
	}
	return p.planner
}

// distribute chooses the places of the machines that move and of the machines to create, in the order in which the set
// carries out the plan: waiting machines move, orphans are adopted, broken machines are deleted, and then machines are
// created.
func (p *Plan) distribute(s State, machines []*v1beta1.Machine) {
	if s.Set.Spec.Placement == nil || !s.Set.DeletionTimestamp.IsZero() {
		return
	}
	p.moveWaiting(s, machines)
	for _, m := range p.Adopt {
		p.plannerFor(s).Add(s.placeOf(m))
	}
	for _, m := range p.Remediate {
		if !isReplaced(m) {
			p.plannerFor(s).Remove(s.placeOf(m))
		}
	}
	p.place(s)
}

// place chooses the places of the machines to create. The set creates no machine that has no place.
func (p *Plan) place(s State) {
	for range p.Create {
		place, _, blocked := p.plannerFor(s).Next()
		if blocked != "" {
			p.CreationBlocked = unplaced(blocked)
			break
		}
		p.Places = append(p.Places, place)
	}
	p.Create = len(p.Places)
}

func unplaced(blocked placement.Blocked) ConditionReason {
	if blocked == placement.BoundsReached {
		return ConditionReason{v1beta1.ReasonBoundsReached,
			"Each domain of spec.placement has maxReplicas machines, so no more are created. Raise maxReplicas or lower replicas."}
	}
	return ConditionReason{v1beta1.ReasonClassNotFound,
		"No class in spec.placement can be used: the classes do not exist, are being deleted, or are rejected by the provider."}
}

// deletionOrder returns the machines in the order in which a set with a surplus deletes them. After the marks and the
// health of the machines, the balance of the placement decides.
func (s *State) deletionOrder(machines []*v1beta1.Machine) []*v1beta1.Machine {
	order := machinestate.DeletionOrder(machines, s.Set.DeletePolicyOrDefault(), s.Set.Generation)
	if s.Places.Placement == nil {
		return order
	}
	return placement.DeletionOrder(s.surplusPlanner(), order, s.placeOf, func(a, b *v1beta1.Machine) bool {
		return machinestate.PrecedenceOf(a).WithoutDetails().Compare(machinestate.PrecedenceOf(b).WithoutDetails()) == 0
	})
}

// moveWaiting chooses other places for machines that wait for capacity.
func (p *Plan) moveWaiting(s State, machines []*v1beta1.Machine) {
	waiting, staying := false, s.rebalancing() || s.endsReplacement()
	for _, m := range firstByName(machines, len(machines)) {
		if !places.AwaitsCapacity(m) {
			continue
		}
		waiting = true
		if staying {
			continue // The machine is deleted, because the rebalancing has failed.
		}
		from := s.placeOf(m)
		if s.isRejected(m) {
			continue // The machine would fail in each class that has the same problem, and then move again.
		}
		if to, moves := p.plannerFor(s).Move(from); moves {
			if p.moves == nil {
				p.moves = make(map[types.UID]placement.Choice)
			}
			p.moves[m.UID] = to
		}
	}
	if waiting {
		p.waitForRetry(s)
	}
}

// isRejected reports whether the configuration of the machine cannot be launched although its class exists.
func (s *State) isRejected(m *v1beta1.Machine) bool {
	c := machinestate.UnlaunchableCondition(m)
	return c != nil && c.Reason != v1beta1.ReasonClassNotFound && c.Reason != v1beta1.ReasonClassDeleting &&
		!s.Capacity[s.placeOf(m).ClassName].Missing
}

// waitForRetry requests another plan when the next class without capacity may be tried again.
func (p *Plan) waitForRetry(s State) {
	for _, c := range s.Capacity {
		if in := c.Wait(s.Now); in > 0 {
			p.waitFor(in)
		}
	}
}

// setPlace returns the machine with the class and the domain label that the plan gives it, or desired if nothing
// changes.
func (p *Plan) setPlace(s State, m, desired *v1beta1.Machine) *v1beta1.Machine {
	if s.Set.Spec.Placement == nil || m.Spec.ClassRef == nil || !machinestate.IsLive(m) {
		return desired
	}
	place, moves := p.moves[m.UID]
	if !moves {
		place = s.placeOf(m)
	}
	if !moves && m.Labels[v1beta1.LabelPlacementDomain] == place.Domain {
		return desired
	}
	if desired == nil {
		desired = m.DeepCopy()
	}
	setPlace(desired, place)
	return desired
}

// setPlace changes the class and the domain label of a machine.
func setPlace(m *v1beta1.Machine, place placement.Choice) {
	m.Spec.ClassRef = &v1beta1.LocalRef{Name: place.ClassName}
	if place.Domain == "" {
		delete(m.Labels, v1beta1.LabelPlacementDomain)
		return
	}
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	m.Labels[v1beta1.LabelPlacementDomain] = place.Domain
}

// adoptableByPlacement divides orphans into those whose class is an option of the placement and the others.
func (s *State) adoptableByPlacement() (adoptable, others []*v1beta1.Machine) {
	if s.Set.Spec.Placement == nil {
		return s.Orphans, nil
	}
	for _, m := range s.Orphans {
		if m.Spec.ClassRef != nil && s.Set.Spec.Placement.DomainOf(m.Spec.ClassRef.Name) != "" {
			adoptable = append(adoptable, m)
		} else {
			others = append(others, m)
		}
	}
	return adoptable, others
}

// balanced sets the condition Balanced of a set without a deployment. The condition does not change while machines are
// created or deleted.
func (c conditions) balanced(s State) {
	if s.Set.Spec.Placement == nil || !s.Standalone {
		meta.RemoveStatusCondition(&c.status.Conditions, v1beta1.ConditionBalanced)
		return
	}
	if report := s.planner().Report(); report.Settled() {
		report.Silent = places.SilentDomains(s.Set.Spec.Placement, s.Machines)
		truth, reason, message := report.Balanced()
		c.set(v1beta1.ConditionBalanced, truth, reason, wording.Shorten(message))
	}
}
