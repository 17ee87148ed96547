package placement

import (
	"maps"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// Choice is a place for a machine.
type Choice struct{ Domain, ClassName string }

// Blocked is the reason why a machine has no place. It is empty if the machine has a place.
type Blocked string

const (
	// BoundsReached means that no domain with a weight above 0 is below its maxReplicas.
	BoundsReached Blocked = "BoundsReached"
	// NoOption means that the classes of all domains below maxReplicas are missing.
	NoOption Blocked = "NoOption"
)

// State is everything that a Planner considers.
type State struct {
	Placement *v1beta1.Placement
	// Replicas is the number of machines to distribute.
	Replicas int
	// Machines are the live machines of all sets, except for machines that are marked for replacement or deletion.
	// A class may be missing in the placement, and a domain may be unknown.
	Machines map[Choice]int
	// Waiting are those of Machines that wait for capacity. Only Report needs Waiting.
	Waiting map[Choice]int
	// Leaving are the machines by domain that a rollout will replace. They are not among Machines and do not count towards
	// maxReplicas. Among the domains that lack at least one machine, those with fewer of these machines get the next one
	// first, so that the distribution also holds during the rollout. Domains that lack less than one machine come later.
	Leaving map[string]int
	// Own are the machines of the own set by domain. If two domains need a machine equally, the domain with fewer of
	// these gets the machine.
	Own map[string]int
	// Capacity is the capacity by class.
	Capacity map[string]Capacity
	Now      time.Time
}

// Planner decides where machines are created and deleted. It counts each decision, so that the next decision
// considers it.
type Planner struct {
	placement *v1beta1.Placement
	replicas  int
	now       time.Time
	unit      int64 // of the shares
	domains   []*domain
	byName    map[string]*domain // includes unknown domains of machines
	machines  map[Choice]int
	waiting   map[Choice]int
	capacity  map[string]*Capacity
}

// domain is a domain of the placement, or an unknown domain that has machines.
type domain struct {
	bounds
	name    string
	options []option
	exists  bool  // at least one class is not missing
	share   int64 // in units
	count   int64
	leaving int64
	own     int
}

// New returns a planner for a state. The planner does not change the state.
func New(s State) *Planner {
	p := &Planner{placement: s.Placement, replicas: s.Replicas, now: s.Now, machines: maps.Clone(s.Machines),
		waiting: maps.Clone(s.Waiting), byName: map[string]*domain{}, capacity: map[string]*Capacity{}}
	if p.placement == nil {
		p.placement = &v1beta1.Placement{}
	}
	if p.machines == nil {
		p.machines = map[Choice]int{}
	}
	if p.waiting == nil {
		p.waiting = map[Choice]int{}
	}
	for class, known := range s.Capacity {
		p.capacity[class] = &known
	}
	limits := make([]bounds, 0, len(p.placement.Domains))
	for i := range p.placement.Domains {
		d := p.newDomain(&p.placement.Domains[i], s)
		limits = append(limits, d.bounds)
		p.domains = append(p.domains, d)
		p.byName[d.name] = d
	}
	shares := sharesOf(limits, int64(s.Replicas))
	p.unit = shares.unit
	for i, d := range p.domains {
		d.share = shares.parts[i]
	}
	for c, n := range p.machines {
		p.domain(c.Domain).count += int64(n)
	}
	return p
}

func (p *Planner) newDomain(spec *v1beta1.PlacementDomain, s State) *domain {
	d := &domain{name: spec.Name, own: s.Own[spec.Name], leaving: int64(s.Leaving[spec.Name]),
		bounds: bounds{weight: int64(spec.WeightOrDefault()),
			minReplicas: int64(spec.MinReplicas), maxReplicas: unlimited}}
	if spec.MaxReplicas != nil {
		d.maxReplicas = int64(*spec.MaxReplicas)
	}
	for _, o := range spec.Options {
		known := p.capacityOf(o.ClassName)
		d.options = append(d.options, option{className: o.ClassName, capacity: known})
		d.exists = d.exists || !known.Missing
	}
	return d
}

// domain returns the domain with the name, and adds an unknown domain.
func (p *Planner) domain(name string) *domain {
	d := p.byName[name]
	if d == nil {
		d = &domain{name: name}
		p.byName[name] = d
	}
	return d
}

// capacityOf returns what is known about the capacity of a class.
func (p *Planner) capacityOf(className string) *Capacity {
	c := p.capacity[className]
	if c == nil {
		c = &Capacity{}
		p.capacity[className] = c
	}
	return c
}

// surplus returns the number of the domain's machines minus its share, in units.
func (p *Planner) surplus(d *domain) int64 { return d.count*p.unit - d.share }

// machinesOf converts a number of units to a number of machines.
func (p *Planner) machinesOf(units int64) float64 { return float64(units) / float64(p.unit) }

// maxSkew returns the maxSkew of the placement in units.
func (p *Planner) maxSkew() int64 { return int64(p.placement.MaxSkewOrDefault()) * p.unit }

// Surplus returns the number of machines in a domain minus the domain's share. The share of an unknown domain is 0.
func (p *Planner) Surplus(domain string) float64 {
	d := p.byName[domain]
	if d == nil {
		return 0
	}
	return p.machinesOf(p.surplus(d))
}

// Next returns the place of the next machine and counts the machine. If hasCapacity is false, the machine waits for
// capacity there. If no place exists, the result blocked is the reason, and the other results are zero.
func (p *Planner) Next() (c Choice, hasCapacity bool, blocked Blocked) {
	c, hasCapacity, blocked = p.place("")
	if blocked != "" {
		return Choice{}, false, blocked
	}
	p.add(c)
	if !hasCapacity {
		p.waiting[c]++
	}
	return c, hasCapacity, ""
}

// Move returns another place with capacity for a machine that waits for capacity, and counts the move. The machine
// stays where it is if its own class has capacity, or if it is the machine that probes its class. If its own class
// is missing, the machine moves even if it has to wait for capacity at the other place.
func (p *Planner) Move(from Choice) (to Choice, moves bool) {
	own := p.capacityOf(from.ClassName)
	others := *own
	others.Pending = max(others.Pending-1, 0)
	if p.machines[from] <= 0 || others.available(p.now) {
		return from, false
	}
	d := p.domain(from.Domain)
	capacityBefore, domainBefore := *own, *d
	p.Remove(from)
	*own = others
	to, hasCapacity, blocked := p.place(from.Domain)
	if blocked != "" || to == from || !hasCapacity && !own.Missing {
		*own, *d = capacityBefore, domainBefore
		p.machines[from]++
		return from, false
	}
	p.add(to)
	p.waiting[from] = max(p.waiting[from]-1, 0)
	if !hasCapacity {
		p.waiting[to]++
	}
	return to, true
}

// Add counts a machine that joins the own set.
func (p *Planner) Add(c Choice) {
	p.machines[c]++
	d := p.domain(c.Domain)
	d.count++
	d.own++
}

// Remove counts that a machine of the own set leaves a place.
func (p *Planner) Remove(c Choice) {
	if p.machines[c] <= 0 {
		return
	}
	p.machines[c]--
	d := p.domain(c.Domain)
	d.count--
	d.own = max(d.own-1, 0)
}

// add counts a machine that has no instance yet at a place.
func (p *Planner) add(c Choice) {
	p.Add(c)
	p.capacityOf(c.ClassName).Pending++
}

// place returns the place of the next machine, but does not count the machine. If two domains need the machine
// equally, the domain with the name current is preferred.
func (p *Planner) place(current string) (c Choice, hasCapacity bool, blocked Blocked) {
	var neediest, best *domain
	var preferred int // option of best
	blocked = BoundsReached
	for _, d := range p.domains {
		if d.weight == 0 || d.count >= d.maxReplicas {
			continue
		}
		if !d.exists {
			if neediest == nil {
				blocked = NoOption
			}
			continue
		}
		blocked = ""
		if neediest == nil || p.needsMore(d, neediest, current) {
			neediest = d
		}
		if best != nil && !p.needsMore(d, best, current) {
			continue
		}
		if i, found := d.withCapacity(p.now); found {
			best, preferred = d, i
		}
	}
	if neediest == nil {
		return Choice{}, false, blocked
	}
	if best != nil && p.mayReceive(best, neediest) {
		return Choice{Domain: best.name, ClassName: best.options[preferred].className}, true, ""
	}
	return Choice{Domain: neediest.name, ClassName: neediest.nextRetry()}, false, ""
}

// mayReceive reports whether a domain may get a machine instead of the neediest domain. With Wait, both domains must
// stay within maxSkew.
func (p *Planner) mayReceive(d, neediest *domain) bool {
	if p.placement.WhenUnsatisfiable != v1beta1.PlacementWait || p.surplus(d) == p.surplus(neediest) {
		return true
	}
	return p.surplus(d)+p.unit <= p.maxSkew() && -p.surplus(neediest) <= p.maxSkew()
}

// needsMore reports whether domain a gets the next machine rather than domain b, which precedes it in the placement.
func (p *Planner) needsMore(a, b *domain, current string) bool {
	surplusA, surplusB := p.surplus(a), p.surplus(b)
	if surplusA < 0 && surplusB < 0 {
		// Domains that lack a whole machine come first. Otherwise, the distribution could exceed maxSkew after the rollout.
		if lacksA, lacksB := surplusA <= -p.unit, surplusB <= -p.unit; lacksA != lacksB {
			return lacksA
		}
		surplusA, surplusB = surplusA+a.leaving*p.unit, surplusB+b.leaving*p.unit
	}
	switch {
	case surplusA != surplusB:
		return surplusA < surplusB
	case a.name == current || b.name == current:
		return a.name == current
	}
	return a.own < b.own
}
