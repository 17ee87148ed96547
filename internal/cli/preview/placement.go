package preview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/internal/fleet/placement"
	"machinist.dev/machinist/internal/fleet/placement/places"
)

// Place is a domain with one of its classes, and the number of machines there before and after the change.
type Place struct {
	// Domain is empty for machines whose class is not an option of the placement.
	Domain string `json:"domain,omitempty"`
	Class  string `json:"class"`
	Before int    `json:"before"`
	After  int    `json:"after"`
}

// placesOf returns what a set knows about the places of machines, as machineset reads it.
func (p *simulation) placesOf(set *v1beta1.MachineSet) machineset.Places {
	known := machineset.NewPlaces(set, p.deployment)
	if known.Placement == nil {
		return known
	}
	known.Capacity = p.capacity
	for _, other := range p.sets {
		if other.UID != set.UID {
			known.AddOtherSet(set, other, p.machines[other.UID])
		}
	}
	return known
}

func setPlace(m *v1beta1.Machine, place placement.Choice) {
	m.Spec.ClassRef = &v1beta1.LocalRef{Name: place.ClassName}
	m.Labels[v1beta1.LabelPlacementDomain] = place.Domain
}

// addPlaces compares the places of the machines before and after the change. Without a placement after the change,
// there are no places.
func (p *Plan) addPlaces(f Fleet, w *simulation) {
	by := f.NewDeployment.Spec.Placement
	if by == nil {
		return
	}
	count := func(machines []*v1beta1.Machine) map[placement.Choice]int {
		n := map[placement.Choice]int{}
		for _, m := range machines {
			if m.DeletionTimestamp.IsZero() && m.Spec.ClassRef != nil {
				n[places.Of(m, by)]++
			}
		}
		return n
	}
	var machines []*v1beta1.Machine
	for _, uid := range slices.Sorted(maps.Keys(w.machines)) {
		machines = append(machines, w.machines[uid]...)
	}
	before, after := count(f.Machines), count(machines)
	add := func(c placement.Choice) {
		if before[c]+after[c] > 0 {
			p.Places = append(p.Places, Place{Domain: c.Domain, Class: c.ClassName, Before: before[c], After: after[c]})
		}
	}
	for i := range by.Domains {
		for _, o := range by.Domains[i].Options {
			add(placement.Choice{Domain: by.Domains[i].Name, ClassName: o.ClassName})
		}
	}
	var others []placement.Choice
	for c := range before {
		if c.Domain == "" {
			others = append(others, c)
		}
	}
	slices.SortFunc(others, func(a, b placement.Choice) int { return cmp.Compare(a.ClassName, b.ClassName) })
	for _, c := range others {
		add(c)
	}
	p.addCapacityNotes(f, by)
}

// addCapacityNotes adds a note for each class of the placement that the cloud has no capacity for.
func (p *Plan) addCapacityNotes(f Fleet, by *v1beta1.Placement) {
	for _, name := range by.ClassNames() {
		c := f.Capacity[name]
		if !c.Exhausted {
			continue
		}
		retry := "A machine may try again now."
		if c.RetryTime.After(f.Now) {
			retry = fmt.Sprintf("The next machine tries again at %s.", c.RetryTime.UTC().Format(time.RFC3339))
		}
		p.Notes = append(p.Notes, fmt.Sprintf("The cloud has no capacity for class %s now, so the plan uses other options. %s", name,
			retry))
	}
	if by.Rebalance == v1beta1.RebalanceWhenIdle {
		p.Notes = append(p.Notes, "The preview does not show machines that are replaced later to restore the distribution (rebalance: WhenIdle).")
	}
}
