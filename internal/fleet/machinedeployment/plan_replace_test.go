package machinedeployment

import (
	"strings"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// A set deletes a marked machine only if enough other machines are available. Otherwise, the set would delete a
// machine that is still starting.
//
// Rule: exchange-makes-the-other-first.
func TestDeploymentReplacesMachineIfEnoughOthersAreAvailable(t *testing.T) {
	surge, noSurge := Bounds{MaxSurge: 1}, Bounds{MaxUnavailable: 1}
	for name, test := range map[string]struct {
		bounds                                 Bounds
		machines, available, unavailableMarked int32
		want                                   string
	}{
		"surge: the marked machine is unavailable":                      {surge, 6, 5, 1, "6→5 (replaced machines)"},
		"surge: the marked machine and another machine are unavailable": {surge, 6, 4, 1, ""},
		"surge: only another machine is unavailable":                    {surge, 6, 5, 0, ""},
		"no surge: all machines are available":                          {noSurge, 5, 5, 0, "5→4 (replaced machines)"},
		"no surge: another machine is unavailable":                      {noSurge, 5, 4, 0, ""},
		"no surge: only the marked machine is unavailable":              {noSurge, 5, 4, 1, "5→4 (replaced machines)"},
	} {
		t.Run(name, func(t *testing.T) {
			set := one(test.machines, markedForReplacement(1), func(s *Set) {
				s.Ready, s.Available, s.UnavailableMarkedForReplacement = test.available, test.available, test.unavailableMarked
				s.Forecast = forecast(test.unavailableMarked, test.machines-test.available)
			})
			plan, got := MakePlan(State{Strategy: v1beta1.StrategyRollingUpdate, Replicas: 5, Bounds: test.bounds,
				SizedFor: 5, Sets: []Set{set}}), ""
			for _, scale := range plan.Scales {
				got += scale.String()
			}
			if got != test.want {
				t.Errorf("scales %q, want %q, waiting %q", got, test.want, plan.WaitMessage)
			}
		})
	}
}

// While a rollout stops, no machine is replaced because of its mark, and the deployment says so.
func TestStoppedRolloutNamesMarkedMachines(t *testing.T) {
	for name, stop := range map[string]func(*State){
		"partition":  func(s *State) { s.Partition = 3 },
		"pauseAfter": func(s *State) { s.PauseAfter = 2 },
	} {
		s := State{Strategy: v1beta1.StrategyRollingUpdate, Replicas: 5, Bounds: Bounds{MaxSurge: 1}, SizedFor: 5,
			CurrentIndex: 1, Sets: []Set{one(3, markedForReplacement(1)), one(2, markedForReplacement(1))}}
		stop(&s)
		plan := MakePlan(s)
		const want = "; 2 machines marked for replacement must wait until no old revision is left"
		if len(plan.Scales) > 0 || !strings.HasSuffix(plan.WaitMessage, want) {
			t.Errorf("%s: scales %v, waits: %q; want none, and a reason that ends with %q", name, plan.Scales,
				plan.WaitMessage, want)
		}
	}
}
