package invariants

import (
	"math"

	"machinist.dev/machinist/api/v1beta1"
)

// The functions in this file compute where the machines of a deployment with spec.placement belong, from the
// documentation of the fields. They use floating-point numbers and a search, so that they share no bug with the
// planner, which computes exact fractions.

// shareTolerance is larger than the rounding errors of DomainShares, and smaller than the difference of any two shares
// in a simulation or a chaos run.
const shareTolerance = 1e-6

// DomainShares returns how many of the replicas each domain should have. The share of a domain is proportional to its
// weight, but at least minReplicas and at most maxReplicas. If the bounds cannot be met together, the shares are
// proportional to the minimums, or equal to the maximums.
func DomainShares(p *v1beta1.Placement, replicas int) map[string]float64 {
	least, most := 0.0, 0.0
	for i := range p.Domains {
		low, high := shareBounds(&p.Domains[i])
		least, most = least+low, most+high
	}
	n := float64(replicas)
	shares := make(map[string]float64, len(p.Domains))
	// At a level, each domain has as many machines as its weight times the level, within its bounds.
	atLevel := func(level float64) (sum float64) {
		for i := range p.Domains {
			d := &p.Domains[i]
			low, high := shareBounds(d)
			shares[d.Name] = min(max(level*float64(d.WeightOrDefault()), low), high)
			sum += shares[d.Name]
		}
		return sum
	}
	switch {
	case least > n:
		for i := range p.Domains {
			low, _ := shareBounds(&p.Domains[i])
			shares[p.Domains[i].Name] = low * n / least
		}
		return shares
	case most <= n:
		atLevel(math.MaxInt32)
		return shares
	}
	low, high := 0.0, n+1 // The smallest weight is 1.
	for range 100 {
		if middle := (low + high) / 2; atLevel(middle) > n {
			high = middle
		} else {
			low = middle
		}
	}
	atLevel(low)
	return shares
}

func shareBounds(d *v1beta1.PlacementDomain) (low, high float64) {
	if d.WeightOrDefault() == 0 {
		return 0, 0
	}
	return float64(d.MinReplicas), MaxInDomain(d)
}

// MaxInDomain returns the maximum number of machines in a domain. If there is no maximum, it is a number that is larger
// than any number of replicas.
func MaxInDomain(d *v1beta1.PlacementDomain) float64 {
	if d.MaxReplicas == nil {
		return 1e9
	}
	return float64(*d.MaxReplicas)
}

// Surplus returns the number of machines in a domain minus the domain's share of the replicas. The share of an unknown
// domain is 0.
func Surplus(shares map[string]float64, domain string, machines int) float64 {
	return float64(machines) - shares[domain]
}

// LargestSkew returns the domain in which the number of machines differs most from the share, and the difference.
func LargestSkew(p *v1beta1.Placement, replicas int, machines map[string]int) (domain string, skew float64) {
	shares := DomainShares(p, replicas)
	for i := range p.Domains {
		name := p.Domains[i].Name
		if s := math.Abs(Surplus(shares, name, machines[name])); domain == "" || s > skew {
			domain, skew = name, s
		}
	}
	return domain, skew
}

// WithinMaxSkew reports whether no domain differs from its share by more than maxSkew.
func WithinMaxSkew(p *v1beta1.Placement, replicas int, machines map[string]int) bool {
	_, skew := LargestSkew(p, replicas, machines)
	return skew <= float64(p.MaxSkewOrDefault())+shareTolerance
}

// Exceeds reports whether a is larger than b by more than a rounding error.
func Exceeds(a, b float64) bool { return a > b+shareTolerance }

// DomainOfClass returns the domain of the first placement that has an option with the class, or nil if none has.
func DomainOfClass(class string, placements ...*v1beta1.Placement) *v1beta1.PlacementDomain {
	for _, p := range placements {
		if p == nil {
			continue
		}
		for i := range p.Domains {
			for _, o := range p.Domains[i].Options {
				if o.ClassName == class {
					return &p.Domains[i]
				}
			}
		}
	}
	return nil
}
