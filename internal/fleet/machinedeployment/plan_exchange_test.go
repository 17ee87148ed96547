package machinedeployment

import (
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// A machine to be replaced that is not available does not count among the others that must be available before it is
// deleted. Without a surge, it goes first, and only if enough others are available: otherwise the set would delete a
// machine that is not available yet, such as the one that was created in place of the last.
//
// Rule: exchange-makes-the-other-first.
func TestADeploymentReplacesAMachineIfEnoughOthersAreAvailable(t *testing.T) {
	surge, noSurge := Bounds{MaxSurge: 1}, Bounds{MaxUnavailable: 1}
	for name, test := range map[string]struct {
		bounds Bounds
		// machines are those of the set, of which one is to be replaced.
		machines, available, exchangedUnavailable int32
		want                                      string
	}{
		"surge: the machine to be replaced is unavailable":    {surge, 6, 5, 1, "6→5 (exchanged)"},
		"surge: so is another one":                            {surge, 6, 4, 1, ""},
		"surge: only another one is":                          {surge, 6, 5, 0, ""},
		"no surge: all are available":                         {noSurge, 5, 5, 0, "5→4 (exchanged)"},
		"no surge: another one is not":                        {noSurge, 5, 4, 0, ""},
		"no surge: the machine to be replaced is unavailable": {noSurge, 5, 4, 1, "5→4 (exchanged)"},
	} {
		t.Run(name, func(t *testing.T) {
			set := one(test.machines, exchanged(1), func(s *Set) {
				s.Ready, s.Available, s.ExchangedUnavailable = test.available, test.available, test.exchangedUnavailable
				s.Forecast = free(test.exchangedUnavailable, test.machines-test.available)
			})
			plan, got := MakePlan(State{Strategy: v1beta1.StrategyRollingUpdate, Replicas: 5, Bounds: test.bounds,
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
