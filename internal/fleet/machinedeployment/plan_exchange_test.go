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

// Without a surge, a machine to be replaced goes first, and only if enough others are available. Otherwise the set
// would delete a machine that is not available yet, such as the one that was created in place of the last.
//
// Rule: exchange-makes-the-other-first.
func TestADeploymentWithoutSurgeReplacesNothingWhileOthersAreUnavailable(t *testing.T) {
	for name, test := range map[string]struct {
		available, exchangedUnavailable int32
		want                            string
	}{
		"all are available":               {3, 0, "3→2 (exchanged)"},
		"another one is not":              {2, 0, ""},
		"only the one to be replaced not": {2, 1, "3→2 (exchanged)"},
	} {
		t.Run(name, func(t *testing.T) {
			set := one(3, exchanged(1), func(s *Set) {
				s.Ready, s.Available, s.ExchangedUnavailable = test.available, test.available, test.exchangedUnavailable
				s.Forecast = free(test.exchangedUnavailable, 3-test.available)
			})
			plan, got := MakePlan(State{Strategy: v1beta1.StrategyRollingUpdate, Replicas: 3, Bounds: Bounds{MaxUnavailable: 1},
				SizedFor: 3, Sets: []Set{set}}), ""
			for _, scale := range plan.Scales {
				got += scale.String()
			}
			if got != test.want {
				t.Errorf("scales %q, want %q, waiting %q", got, test.want, plan.Waiting)
			}
		})
	}
}
