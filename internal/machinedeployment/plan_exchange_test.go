package machinedeployment

import (
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: exchange-makes-the-other-first. A machine to be replaced that is not available does not count among the
// others that must be available before it is deleted.
func TestADeploymentReplacesAnUnavailableMachine(t *testing.T) {
	for name, test := range map[string]struct {
		available, unavailable int32
		want                   string
	}{
		"the machine to be replaced is unavailable": {5, 1, "6→5 (exchanged)"},
		"so is another one":                         {4, 1, ""},
		"only another one is":                       {5, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			set := one(6, exchanged(1), func(s *Set) {
				s.Ready, s.Available, s.ExchangedUnavailable = test.available, test.available, test.unavailable
				s.Forecast = free(test.unavailable, 6-test.available)
			})
			plan, got := MakePlan(State{Strategy: v1beta1.StrategyRollingUpdate, Replicas: 5, Bounds: Bounds{MaxSurge: 1},
				SizedFor: 5, Sets: []Set{set}}), ""
			for _, scale := range plan.Scales {
				got += scale.String()
			}
			if got != test.want {
				t.Errorf("scales %q, want %q, waiting %q", got, test.want, plan.Waiting)
			}
		})
	}
}
