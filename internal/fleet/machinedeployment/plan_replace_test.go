package machinedeployment

import (
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: exchange-makes-the-other-first. An unavailable machine that is marked for replacement does not count among the
// other machines that must be available before it is deleted.
func TestDeploymentReplacesUnavailableMachine(t *testing.T) {
	for name, test := range map[string]struct {
		available, unavailable int32
		want                   string
	}{
		"the marked machine is unavailable":                      {5, 1, "6→5 (replaced machines)"},
		"the marked machine and another machine are unavailable": {4, 1, ""},
		"only another machine is unavailable":                    {5, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			set := one(6, markedForReplacement(1), func(s *Set) {
				s.Ready, s.Available, s.UnavailableMarkedForReplacement = test.available, test.available, test.unavailable
				s.Forecast = forecast(test.unavailable, 6-test.available)
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

// Without a surge, a marked machine is deleted before its replacement is created, and only if enough other machines are
// available. Otherwise the set would delete a machine that is not available yet, such as the replacement of the last
// one.
//
// Rule: exchange-makes-the-other-first.
func TestDeploymentWithoutSurgeReplacesNothingWhileOthersAreUnavailable(t *testing.T) {
	for name, test := range map[string]struct {
		available, unavailableMarked int32
		want                         string
	}{
		"all machines are available":             {3, 0, "3→2 (replaced machines)"},
		"another machine is unavailable":         {2, 0, ""},
		"only the marked machine is unavailable": {2, 1, "3→2 (replaced machines)"},
	} {
		t.Run(name, func(t *testing.T) {
			set := one(3, markedForReplacement(1), func(s *Set) {
				s.Ready, s.Available, s.UnavailableMarkedForReplacement = test.available, test.available, test.unavailableMarked
				s.Forecast = forecast(test.unavailableMarked, 3-test.available)
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
