package placement

import (
	"cmp"
	"slices"
)

// bounds are the fields of a domain that determine its share.
type bounds struct {
	weight, minReplicas int64
	// maxReplicas is unlimited if there is no maximum.
	maxReplicas int64
}

// unlimited is the maximum of a domain without maxReplicas. No placement has that many machines.
const unlimited int64 = 1 << 32

// shares are the numbers of machines that domains should have. A share is a fraction: the share of domain d is
// parts[d] / unit. All shares have the same unit, so they can be compared exactly.
type shares struct {
	parts []int64
	unit  int64
}

// level is a fraction. At a level, each domain has weight × level machines, within its bounds.
type level struct{ dividend, divisor int64 }

// sharesOf distributes replicas over domains in proportion to their weights, within their bounds. If the minimums
// are too large together, they are scaled down in proportion. If the maximums are too small together, each domain's
// share is its maximum, and some replicas are in no share.
func sharesOf(domains []bounds, replicas int64) shares {
	replicas = max(replicas, 0)
	limits := make([]bounds, len(domains))
	var minimum int64
	for i, d := range domains {
		// No share is larger than replicas, so this maximum changes nothing.
		d.maxReplicas = min(d.maxReplicas, max(replicas, d.minReplicas))
		d.minReplicas = min(d.minReplicas, d.maxReplicas)
		if d.weight == 0 {
			d = bounds{}
		}
		limits[i] = d
		minimum += d.minReplicas
	}
	if minimum > replicas {
		s := shares{parts: make([]int64, len(limits)), unit: minimum}
		for i, d := range limits {
			s.parts[i] = d.minReplicas * replicas
		}
		return s
	}
	return distribute(limits, lastLevelWithin(limits, replicas), replicas)
}

// lastLevelWithin returns the highest level at which a domain reaches a bound and at which all domains together have
// at most the given number of replicas.
func lastLevelWithin(domains []bounds, replicas int64) level {
	levels := make([]level, 0, 2*len(domains)+1)
	levels = append(levels, level{dividend: 0, divisor: 1})
	for _, d := range domains {
		if d.weight > 0 {
			levels = append(levels, level{d.minReplicas, d.weight}, level{d.maxReplicas, d.weight})
		}
	}
	slices.SortFunc(levels, func(a, b level) int { return cmp.Compare(a.dividend*b.divisor, b.dividend*a.divisor) })
	// At level 0, all domains have minReplicas, and the caller has checked that these are not too many.
	exceeds := func(l level, replicas int64) int {
		var sum int64
		for _, d := range domains {
			sum += min(max(l.dividend*d.weight, l.divisor*d.minReplicas), l.divisor*d.maxReplicas)
		}
		if sum > l.divisor*replicas {
			return 1
		}
		return -1
	}
	first, _ := slices.BinarySearchFunc(levels, replicas, exceeds)
	return levels[max(first, 1)-1]
}

// distribute returns the shares of domains if no domain reaches a bound between the level and the level of the
// result. Domains that are at a bound keep this number, and the weights of the other domains distribute the rest.
func distribute(domains []bounds, l level, replicas int64) shares {
	s := shares{parts: make([]int64, len(domains))}
	rest := replicas
	within := make([]bool, len(domains))
	for i, d := range domains {
		switch {
		case l.dividend*d.weight < l.divisor*d.minReplicas:
			s.parts[i] = d.minReplicas
		case l.dividend*d.weight >= l.divisor*d.maxReplicas:
			s.parts[i] = d.maxReplicas
		default:
			within[i] = true
			s.unit += d.weight
		}
		rest -= s.parts[i]
	}
	s.unit = max(s.unit, 1)
	for i, d := range domains {
		if within[i] {
			s.parts[i] = rest * d.weight
		} else {
			s.parts[i] *= s.unit
		}
	}
	return s
}
