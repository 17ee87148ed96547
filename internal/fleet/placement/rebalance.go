package placement

import (
	"maps"
	"slices"

	"machinist.dev/machinist/api/v1beta1"
)

// Rebalance returns a machine to replace, and the place of its replacement, if this restores the distribution:
//
//   - If the distribution exceeds maxSkew, a machine moves from the domain with the largest surplus to a domain
//     whose surplus is smaller by more than 1.
//   - Otherwise, a machine moves to a more preferred option if such an option of its domain has capacity.
//
// The result is false if the placement does not rebalance, or if no replacement improves the distribution. Rebalance
// does not count the move: the replaced machine leaves the counted machines when it is marked, and then Next returns
// the same place. Each move improves the distribution, so that repeated moves come to an end.
func (p *Planner) Rebalance() (from, to Choice, ok bool) {
	if p.placement.Rebalance != v1beta1.RebalanceWhenIdle {
		return Choice{}, Choice{}, false
	}
	if p.largestSkew() > p.maxSkew() {
		if from, to, ok = p.otherDomain(); ok {
			return from, to, true
		}
	}
	return p.preferredOption()
}

// largestSkew returns the largest difference between the number of a domain's machines and its share, in units.
func (p *Planner) largestSkew() (largest int64) {
	for _, d := range p.domains {
		surplus := p.surplus(d)
		largest = max(largest, surplus, -surplus)
	}
	return largest
}

// otherDomain returns a move from the domain with the largest surplus to another domain.
func (p *Planner) otherDomain() (from, to Choice, ok bool) {
	var most *domain
	for _, d := range p.domains {
		if d.count > 0 && (most == nil || p.surplus(d) > p.surplus(most)) {
			most = d
		}
	}
	if most == nil {
		return Choice{}, Choice{}, false
	}
	classes := p.leastPreferredFirst(most)
	if len(classes) == 0 {
		return Choice{}, Choice{}, false
	}
	to, hasCapacity := p.placeWithout(most)
	if !hasCapacity || p.surplus(most)-p.surplus(p.domain(to.Domain)) <= p.unit {
		return Choice{}, Choice{}, false
	}
	return Choice{Domain: most.name, ClassName: classes[0]}, to, true
}

// preferredOption returns a move of a machine to a more preferred option.
func (p *Planner) preferredOption() (from, to Choice, ok bool) {
	for _, d := range p.domains {
		best, hasCapacity := d.withCapacity(p.now)
		if !hasCapacity || d.count == 0 {
			continue
		}
		// Next may return another domain, because the other domain needs a machine as much as this domain.
		to, hasCapacity = p.placeWithout(d)
		if !hasCapacity || p.worsens(d, p.domain(to.Domain)) {
			continue
		}
		for i := len(d.options) - 1; i > max(best, p.rank(to)); i-- {
			from = Choice{Domain: d.name, ClassName: d.options[i].className}
			if p.machines[from] > 0 {
				return from, to, true
			}
		}
	}
	return Choice{}, Choice{}, false
}

// worsens reports whether a move of a machine between the domains worsens the distribution.
func (p *Planner) worsens(from, to *domain) bool {
	return from != to && p.surplus(from)-p.surplus(to) < p.unit
}

// placeWithout returns the place of the next machine if a machine of the domain is removed first.
func (p *Planner) placeWithout(d *domain) (to Choice, hasCapacity bool) {
	before := *d
	d.count--
	d.own = max(d.own-1, 0)
	to, hasCapacity, blocked := p.place("")
	*d = before
	return to, hasCapacity && blocked == ""
}

// rank returns the index of the class among the options of its domain. A class that is not an option is last.
func (p *Planner) rank(c Choice) int {
	options := p.domain(c.Domain).options
	if i := slices.IndexFunc(options, func(o option) bool { return o.className == c.ClassName }); i >= 0 {
		return i
	}
	return len(options)
}

// leastPreferredFirst returns the classes of the domain's machines. Classes that are not options are first.
func (p *Planner) leastPreferredFirst(d *domain) []string {
	var classes []string
	for c := range maps.Keys(p.machines) {
		if c.Domain == d.name && p.machines[c] > 0 {
			classes = append(classes, c.ClassName)
		}
	}
	slices.Sort(classes)
	slices.SortStableFunc(classes, func(a, b string) int {
		return p.rank(Choice{d.name, b}) - p.rank(Choice{d.name, a})
	})
	return classes
}
