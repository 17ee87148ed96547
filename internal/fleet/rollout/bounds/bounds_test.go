package bounds

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
)

func TestResolve(t *testing.T) {
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
		{"a rollout of a small fleet can advance", rolling("0", "10%"), 5, Bounds{0, 1}, false},
		{"both zero", rolling("0", "0"), 5, Bounds{0, 1}, false},
		{"both zero percent", rolling("0%", "0%"), 5, Bounds{0, 1}, false},
		{"more than 100%", rolling("300%", "300%"), 5, Bounds{15, 5}, false},
		{"no replicas", rolling("50%", "50%"), 0, Bounds{0, 0}, false},
		{"largest numbers", rolling("2147483647", "2147483647"), 100000, Bounds{maxMachines, 100000}, false},
		{"negative surge", rolling("-1", "0"), 5, Bounds{}, true},
		{"negative unavailable", rolling("1", "-1"), 5, Bounds{}, true},
		{"not a number", rolling("some", "0"), 5, Bounds{}, true},
		{"recreate", v1beta1.DeploymentStrategy{Type: v1beta1.StrategyRecreate}, 5, Bounds{0, 5}, false},
		{"on delete", v1beta1.DeploymentStrategy{Type: v1beta1.StrategyOnDelete}, 5, Bounds{0, 0}, false},
		{"in place", v1beta1.DeploymentStrategy{Type: v1beta1.StrategyInPlace}, 5, Bounds{0, 1}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := Resolve(test.strategy, test.replicas)
			if (err != nil) != test.fails {
				t.Fatalf("error: %v", err)
			}
			if got != test.want {
				t.Errorf("bounds are %+v, expected %+v", got, test.want)
			}
		})
	}
}
