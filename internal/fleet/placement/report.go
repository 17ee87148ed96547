package placement

import (
	"maps"
	"slices"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// Report describes the distribution of machines.
type Report struct {
	// Domains are the domains of the placement in its order, and then unknown domains that have machines.
	Domains []DomainReport
	// Unavailable are the options whose class is exhausted, missing or rejected.
	Unavailable []OptionReport
	// Silent are the domains in which most Nodes are not Ready. New machines go there as usual.
	Silent []string
	// Next is the place of the next machine. If NextWaits is true, the machine waits for capacity there.
	Next      Choice
	NextWaits bool
	// Blocked is the reason why the next machine has no place.
	Blocked Blocked
	// Unplaced is the number of replicas that have no place.
	Unplaced int
	// Waiting is the number of machines that wait for capacity and have no other place.
	Waiting int
	// Changing is the number of machines that will be created, or, if negative, deleted until all replicas exist.
	Changing int
	// Skew is the largest difference between the number of machines in a domain and the domain's share. It is the
	// difference after the machines have been created or deleted.
	Skew float64

	maxSkew  int32
	exceeded bool // Skew is larger than maxSkew
	// noCapacity is true if a domain with too few machines has no capacity, and noClass if all its classes are missing.
	noCapacity, noClass bool
	replicas            int
	rebalances          bool
	now                 time.Time
}

// DomainReport describes a domain.
type DomainReport struct {
	Name     string
	Machines int
	Share    float64
}

// OptionReport describes an option whose class is exhausted, missing or rejected.
type OptionReport struct {
	Choice
	Capacity
}

// Report describes the current distribution. The planner should already have counted all decisions of the
// controller.
func (p *Planner) Report() Report {
	r := Report{maxSkew: p.placement.MaxSkewOrDefault(), replicas: p.replicas, now: p.now,
		rebalances: p.placement.Rebalance == v1beta1.RebalanceWhenIdle}
	for _, d := range p.domains {
		r.Domains = append(r.Domains, p.reportDomain(d))
		for _, o := range d.options {
			if o.capacity.Exhausted || o.capacity.Missing || o.capacity.Rejected != "" {
				r.Unavailable = append(r.Unavailable, OptionReport{Choice{d.name, o.className}, *o.capacity})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.byName)) {
		if d := p.byName[name]; !slices.Contains(p.domains, d) && d.count > 0 {
			r.Domains = append(r.Domains, p.reportDomain(d))
		}
	}
	for _, d := range p.byName {
		r.Changing -= int(d.count)
	}
	r.Changing += p.replicas
	p.clone().complete(&r)
	return r
}

// Settled reports whether all machines that have a place exist, and no others.
func (r Report) Settled() bool { return r.Changing == r.Unplaced }

func (p *Planner) reportDomain(d *domain) DomainReport {
	return DomainReport{Name: d.name, Machines: int(d.count), Share: p.machinesOf(d.share)}
}

// complete creates or deletes machines until all replicas exist, and reports the result.
func (p *Planner) complete(r *Report) {
	for n := r.Changing; n > 0 && r.Unplaced == 0; n-- {
		if _, _, blocked := p.Next(); blocked != "" {
			r.Unplaced, r.Blocked = n, blocked
		}
	}
	for range -r.Changing {
		p.removeSurplus()
	}
	for c, n := range maps.Clone(p.waiting) {
		for range n {
			if _, moves := p.Move(c); !moves {
				r.Waiting++
			}
		}
	}
	skew := p.largestSkew()
	r.Skew, r.exceeded = p.machinesOf(skew), skew > p.maxSkew()
	for _, d := range p.domains {
		if unusable, isMissing := d.isUnusable(); unusable && p.surplus(d) < 0 {
			r.noCapacity, r.noClass = r.noCapacity || !isMissing, r.noClass || isMissing
		}
	}
	if r.Blocked == "" {
		var hasCapacity bool
		r.Next, hasCapacity, r.Blocked = p.Next()
		r.NextWaits = r.Blocked == "" && !hasCapacity
	}
}

// removeSurplus counts that a machine of the domain with the largest surplus leaves.
func (p *Planner) removeSurplus() {
	var most *domain
	for _, d := range p.byName {
		if d.count > 0 && (most == nil || p.surplus(d) > p.surplus(most) ||
			p.surplus(d) == p.surplus(most) && d.name < most.name) {
			most = d
		}
	}
	if most != nil {
		most.count--
	}
}

// clone returns a copy of the planner.
func (p *Planner) clone() *Planner {
	c := *p
	c.machines, c.waiting = maps.Clone(p.machines), maps.Clone(p.waiting)
	c.domains, c.byName, c.capacity = nil, map[string]*domain{}, map[string]*Capacity{}
	for class, known := range p.capacity {
		copied := *known
		c.capacity[class] = &copied
	}
	for name, d := range p.byName {
		copied := *d
		copied.options = slices.Clone(d.options)
		for i := range copied.options {
			copied.options[i].capacity = c.capacity[copied.options[i].className]
		}
		c.byName[name] = &copied
	}
	for _, d := range p.domains {
		c.domains = append(c.domains, c.byName[d.name])
	}
	return &c
}
