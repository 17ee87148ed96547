package machineset

import (
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/fleet/placement/places"
	"machinist.dev/machinist/internal/machine/machinestate"
)

const (
	minRebalancingBackoff = time.Minute
	maxRebalancingBackoff = 5 * time.Minute
)

// rebalance marks one machine for replacement if the placement asks for that and the set is idle: all machines are
// available, and no rollout or replacement is in progress. If the new machine then finds no capacity, the mark is
// removed.
func (p *Plan) rebalance(s State, active []*v1beta1.Machine) {
	by := s.Set.Spec.Placement
	if by == nil || by.Rebalance != v1beta1.RebalanceWhenIdle || s.RebalancePaused || s.MaxReplacing == 0 ||
		len(active) != int(s.Set.ReplicasOrDefault()) || len(s.Machines) != len(active) || len(s.InOtherSets) > 0 ||
		!p.IsEmpty() || p.FreezeReason.Reason != "" || s.freezeReason().Reason != "" {
		return
	}
	for _, m := range s.unsteady() {
		if !machinestate.IsAvailable(m, s.Set.Spec.MinReadySeconds, s.Now) || isReplaced(m) || machinestate.ToBeReplaced(m) {
			return
		}
	}
	if wait := s.NextRebalancing.Sub(s.Now); wait > 0 {
		p.waitFor(wait)
		return
	}
	from, to, ok := s.planner().Rebalance()
	// Without maxSurge, the machine is deleted before its replacement exists. A running machine must not be deleted only
	// to find out whether the cloud has capacity again.
	deletesFirst := !s.Standalone && s.Surge == 0
	if !ok || deletesFirst && s.Capacity[to.ClassName].Exhausted {
		p.waitForRetry(s)
		return
	}
	for _, m := range s.deletionOrder(active) {
		if s.placeOf(m) != from || machinestate.IsUnchangeable(m) {
			continue
		}
		may, denied := p.ask(s, []*v1beta1.Machine{m}, func(*v1beta1.Machine) v1beta1.DisruptionReason {
			return v1beta1.DisruptionRebalance
		})
		p.deny(denied)
		if len(may) > 0 {
			p.rebalanced = m
		}
		return
	}
}

// markRebalanced adds or removes the annotation of a machine that is replaced to restore the balance.
func (p *Plan) markRebalanced(s State, m, desired *v1beta1.Machine) *v1beta1.Machine {
	stale := isRebalanced(m) && s.rebalanceFailed()
	if p.rebalanced != m && !stale {
		return desired
	}
	return setReplaceMark(m, desired, disruption.RebalanceValue, stale)
}

// rebalanceFailed reports whether the replacement of a rebalanced machine found no capacity.
func (s *State) rebalanceFailed() bool {
	for _, m := range s.unsteady() {
		if places.AwaitsCapacity(m) {
			return true
		}
	}
	return false
}

// isRebalanced reports whether the machine is marked for replacement to restore the balance.
func isRebalanced(m *v1beta1.Machine) bool {
	return m.Annotations[v1beta1.AnnotationReplace] == disruption.RebalanceValue
}

// rebalancing reports whether a machine of the set is being replaced to restore the balance.
func (s *State) rebalancing() bool {
	for _, m := range s.unsteady() {
		if machinestate.IsLive(m) && !machinestate.IsUnchangeable(m) && isRebalanced(m) {
			return true
		}
	}
	return false
}

// endsReplacement reports whether the set still has the additional machine of a replacement whose mark was removed. The
// deployment will lower the replicas of the set, so the additional machine must not get an instance.
func (s *State) endsReplacement() bool {
	if disruption.ReplacementSurge(s.Set) == 0 {
		return false
	}
	live, marked := 0, 0
	for _, m := range s.Machines {
		if machinestate.IsLive(m) {
			live++
			if machinestate.HasReplaceAnnotation(m) {
				marked++
			}
		}
	}
	return live > s.Places.Replicas+marked
}
