package invariants

import (
	"maps"
	"math"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

func domainFor(name string, weight, least, most int32) v1beta1.PlacementDomain {
	d := v1beta1.PlacementDomain{Name: name, Weight: &weight, MinReplicas: least,
		Options: []v1beta1.PlacementOption{{ClassName: name + "-small"}}}
	if most >= 0 {
		d.MaxReplicas = &most
	}
	return d
}

func TestDomainShares(t *testing.T) {
	const none = -1
	for name, test := range map[string]struct {
		domains  []v1beta1.PlacementDomain
		replicas int
		want     map[string]float64
	}{
		"no replicas": {[]v1beta1.PlacementDomain{domainFor("a", 1, 0, none)}, 0, map[string]float64{"a": 0}},
		"equal weights": {[]v1beta1.PlacementDomain{domainFor("a", 1, 0, none), domainFor("b", 1, 0, none)}, 5,
			map[string]float64{"a": 2.5, "b": 2.5}},
		"weights 3:1:0": {[]v1beta1.PlacementDomain{domainFor("a", 3, 0, none), domainFor("b", 1, 0, none),
			domainFor("c", 0, 0, none)}, 8, map[string]float64{"a": 6, "b": 2, "c": 0}},
		"a minimum takes from the others": {[]v1beta1.PlacementDomain{domainFor("a", 1, 4, none),
			domainFor("b", 1, 0, none), domainFor("c", 1, 0, none)}, 6, map[string]float64{"a": 4, "b": 1, "c": 1}},
		"a maximum gives to the others": {[]v1beta1.PlacementDomain{domainFor("a", 1, 0, 1), domainFor("b", 1, 0, none),
			domainFor("c", 3, 0, none)}, 9, map[string]float64{"a": 1, "b": 2, "c": 6}},
		"minimums are too large": {[]v1beta1.PlacementDomain{domainFor("a", 1, 6, none), domainFor("b", 1, 2, none)}, 4,
			map[string]float64{"a": 3, "b": 1}},
		"maximums are too small": {[]v1beta1.PlacementDomain{domainFor("a", 1, 0, 1), domainFor("b", 5, 0, 2)}, 9,
			map[string]float64{"a": 1, "b": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			got := DomainShares(&v1beta1.Placement{Domains: test.domains}, test.replicas)
			if !maps.EqualFunc(got, test.want, func(a, b float64) bool { return math.Abs(a-b) < shareTolerance }) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestWithinMaxSkew(t *testing.T) {
	p := &v1beta1.Placement{Domains: []v1beta1.PlacementDomain{domainFor("a", 1, 0, -1), domainFor("b", 1, 0, -1)}}
	for _, test := range []struct {
		machines map[string]int
		want     bool
	}{
		{map[string]int{"a": 2, "b": 2}, true},
		{map[string]int{"a": 3, "b": 1}, true},
		{map[string]int{"a": 4}, false},
		{map[string]int{"b": 2, "unknown": 2}, false},
	} {
		if got := WithinMaxSkew(p, 4, test.machines); got != test.want {
			t.Errorf("WithinMaxSkew(%v) = %t, want %t", test.machines, got, test.want)
		}
	}
	if domain, skew := LargestSkew(p, 4, map[string]int{"b": 2, "unknown": 2}); domain != "a" || skew != 2 {
		t.Errorf("LargestSkew = %s, %v, want a, 2", domain, skew)
	}
}
