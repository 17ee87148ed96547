package machineset

import (
	"testing"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
)

// Rule: remediation-never-waits-for-a-replacement.
func TestRemediationRunsWhileReplacementIsPending(t *testing.T) {
	standalone := func(s *State) { s.Standalone, s.MaxReplacing = true, 1 }
	denying := func(reason v1beta1.DisruptionReason) func(*State) {
		return func(s *State) {
			s.Decide = func(asked []disruption.Candidate) (may []disruption.Candidate, denied []disruption.Denial) {
				for _, c := range asked {
					if c.Reason == reason {
						denied = append(denied, disruption.Denial{Candidate: c})
					} else {
						may = append(may, c)
					}
				}
				return may, denied
			}
		}
	}
	skipped := annotated(v1beta1.AnnotationSkipRemediation, "")
	a, n := newMachine("a", up, registered), newMachine("n", up, registered)
	asked := newMachine("m", up, registered, marked)
	for _, test := range []struct {
		name  string
		state State
		want  string
	}{
		{"the marked machine is unhealthy", withBudget(t, "9", stateOf(aSet(2), a,
			newMachine("m", toRemediate, registered, marked)), standalone), "replace m"},
		{"the marked machine became unhealthy after its replacement was created", withBudget(t, "9", stateOf(aSet(2), a,
			newMachine("m", toRemediate, registered, marked), n), standalone), "replace m"},
		{"the marked machine failed and is exempt from remediation", withBudget(t, "9", stateOf(aSet(2), a,
			newMachine("m", broken, registered, marked, skipped), n), standalone), "delete m"},
		{"the same, but the replacement is not available yet", withBudget(t, "9", stateOf(aSet(2), a,
			newMachine("m", broken, registered, marked, skipped), newMachine("n")), standalone), "settled"},
		{"another machine is broken before the replacement is created",
			withBudget(t, "9", stateOf(aSet(2), newMachine("b", broken, registered), asked), standalone), "replace b"},
		{"another machine is broken after the replacement was created",
			withBudget(t, "9", stateOf(aSet(2), newMachine("b", broken, registered), asked, n), standalone),
			"replace b"},
		{"the replacement failed",
			withBudget(t, "9", stateOf(aSet(2), a, asked, newMachine("n", broken)), standalone), "replace n"},
		{"a budget denies the marked machine", withBudget(t, "9", stateOf(aSet(2), newMachine("b", broken, registered),
			asked, n), standalone, denying(v1beta1.DisruptionReplace)), "replace b"},
		{"a marked machine that is unavailable is deleted first", withBudget(t, "9", stateOf(aSet(2),
			newMachine("a", up, registered, marked), newMachine("m", notReady, registered, marked), n), standalone), "delete m"},
		{"replicas were lowered at the same time",
			withBudget(t, "9", stateOf(aSet(2), newMachine("b", broken, registered), asked, a),
				standalone), "replace b"},
		{"replicas were lowered by two",
			withBudget(t, "9", stateOf(aSet(2), newMachine("b", broken, registered), asked, a, n), standalone),
			"delete m b"},
		{"a frozen set keeps the marked machine",
			withBudget(t, "9", stateOf(aSet(2, frozen), newMachine("b", broken, registered),
				asked, n), standalone), "but FrozenByLabel"},
		{"a frozen set does not treat the replacement as surplus",
			withBudget(t, "9", stateOf(aSet(2, frozen), a, asked, newMachine("n")), standalone), "but FrozenByLabel"},
		{"in a deployment, a budget denies the surplus",
			withBudget(t, "9", stateOf(aSet(2), newMachine("b", broken, registered),
				asked, a), denying(v1beta1.DisruptionReplace)), "deny m; replace b; wait 30s"},
		{"in a deployment, no machine can be spared",
			withBudget(t, "9", stateOf(aSet(1), newMachine("b", toRemediate, registered),
				newMachine("m", up, registered, marked)), func(s *State) { s.Availability.MinAvailable = 2 }),
			"keep m; replace b; wait 1s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Decide(test.state).String(); got != test.want {
				t.Errorf("\n got: %s\nwant: %s", got, test.want)
			}
		})
	}
}
