package machinedeployment

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
)

func TestResolveBounds(t *testing.T) {
	rolling := func(surge, unavailable string) v1beta1.DeploymentStrategy {
		s, u := intstr.Parse(surge), intstr.Parse(unavailable)
		return v1beta1.DeploymentStrategy{RollingUpdate: &v1beta1.RollingUpdate{MaxSurge: &s, MaxUnavailable: &u}}
	}
	tests := []struct {
		name     string
		strategy v1beta1.DeploymentStrategy
		replicas int32
		want     Bounds
		fails    bool
	}{
		{"defaults", v1beta1.DeploymentStrategy{}, 5, Bounds{1, 0}, false},
		{"numbers", rolling("2", "3"), 5, Bounds{2, 3}, false},
		{"surge is rounded up, unavailable down", rolling("25%", "25%"), 5, Bounds{2, 1}, false},
		{"nothing to round", rolling("20%", "20%"), 5, Bounds{1, 1}, false},
		{"a small fleet can still move", rolling("0", "10%"), 5, Bounds{0, 1}, false},
		{"both zero", rolling("0", "0"), 5, Bounds{0, 1}, false},
		{"both zero percent", rolling("0%", "0%"), 5, Bounds{0, 1}, false},
		{"more than all", rolling("300%", "300%"), 5, Bounds{15, 5}, false},
		{"no replicas", rolling("50%", "50%"), 0, Bounds{0, 0}, false},
		{"largest numbers", rolling("2147483647", "2147483647"), 100000, Bounds{maxMachines, 100000}, false},
		{"negative surge", rolling("-1", "0"), 5, Bounds{}, true},
		{"negative unavailable", rolling("1", "-1"), 5, Bounds{}, true},
		{"no number", rolling("some", "0"), 5, Bounds{}, true},
		{"recreate", v1beta1.DeploymentStrategy{Type: v1beta1.StrategyRecreate}, 5, Bounds{0, 5}, false},
		{"on delete", v1beta1.DeploymentStrategy{Type: v1beta1.StrategyOnDelete}, 5, Bounds{0, 0}, false},
		{"in place", v1beta1.DeploymentStrategy{Type: v1beta1.StrategyInPlace}, 5, Bounds{0, 1}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := ResolveBounds(test.strategy, test.replicas)
			if (err != nil) != test.fails {
				t.Fatalf("error: %v", err)
			}
			if got != test.want {
				t.Errorf("bounds are %+v, expected %+v", got, test.want)
			}
		})
	}
}

// D-4.
func TestShare(t *testing.T) {
	for _, test := range []struct {
		n       int32
		weights []int32
		want    []int32
	}{
		{0, []int32{1, 2}, []int32{0, 0}},
		{-3, []int32{1, 2}, []int32{0, 0}},
		{5, []int32{0, 0}, []int32{0, 0}},
		{5, nil, []int32{}},
		{6, []int32{1, 2}, []int32{2, 4}},
		{1, []int32{5, 5}, []int32{0, 1}},
		{3, []int32{5, 5}, []int32{1, 2}},
		{10, []int32{1, 1, 1}, []int32{3, 3, 4}},
		{7, []int32{70, 20, 10}, []int32{5, 1, 1}},
		{100000, []int32{100000, 100000, 1}, []int32{50000, 50000, 0}},
	} {
		got := share(test.n, test.weights)
		if !slices.Equal(got, test.want) {
			t.Errorf("%d shared by %v is %v, expected %v", test.n, test.weights, got, test.want)
		}
		var sum int32
		for _, part := range got {
			sum += part
		}
		if test.n > 0 && slices.ContainsFunc(test.weights, func(w int32) bool { return w > 0 }) && sum != test.n {
			t.Errorf("%d shared by %v adds up to %d", test.n, test.weights, sum)
		}
	}
}
