package machineset

import (
	"testing"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
)

// Rule: remediation-never-waits-for-a-replacement.
func TestRemediationRunsWhileAReplacementIsPending(t *testing.T) {
	alone := func(s *State) { s.Alone, s.Exchanges = true, 1 }
	denying := func(reason v1beta1.DisruptionReason) func(*State) {
		return func(s *State) {
			s.Ask = func(asked []disruption.Candidate) (may []disruption.Candidate, denied []disruption.Denial) {
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
		{"the machine to be replaced is unhealthy", under(t, "9", stateOf(aSet(2), a,
			newMachine("m", toRemediate, registered, marked)), alone), "replace m"},
		{"it became so after the other one was created", under(t, "9", stateOf(aSet(2), a,
			newMachine("m", toRemediate, registered, marked), n), alone), "replace m"},
		{"it is not to be remediated", under(t, "9", stateOf(aSet(2), a,
			newMachine("m", broken, registered, marked, skipped), n), alone), "delete m"},
		{"and the other one is not available yet", under(t, "9", stateOf(aSet(2), a,
			newMachine("m", broken, registered, marked, skipped), newMachine("n")), alone), "settled"},
		{"another machine is broken before the other one is created",
			under(t, "9", stateOf(aSet(2), newMachine("b", broken, registered), asked), alone), "replace b"},
		{"after it was created", under(t, "9", stateOf(aSet(2), newMachine("b", broken, registered), asked, n), alone),
			"replace b"},
		{"the replacement failed", under(t, "9", stateOf(aSet(2), a, asked, newMachine("n", broken)), alone), "replace n"},
		{"a budget denies the marked machine", under(t, "9", stateOf(aSet(2), newMachine("b", broken, registered),
			asked, n), alone, denying(v1beta1.DisruptionReplace)), "replace b"},
		{"one that is not available goes first", under(t, "9", stateOf(aSet(2),
			newMachine("a", up, registered, marked), newMachine("m", notReady, registered, marked), n), alone), "delete m"},
		{"replicas were lowered at the same time", under(t, "9", stateOf(aSet(2), newMachine("b", broken, registered), asked, a),
			alone), "replace b"},
		{"they were lowered by two", under(t, "9", stateOf(aSet(2), newMachine("b", broken, registered), asked, a, n), alone),
			"delete m b"},
		{"frozen, the marked machine stays", under(t, "9", stateOf(aSet(2, frozen), newMachine("b", broken, registered),
			asked, n), alone), "but FrozenByLabel"},
		{"frozen, one more than wanted is no surplus",
			under(t, "9", stateOf(aSet(2, frozen), a, asked, newMachine("n")), alone), "but FrozenByLabel"},
		{"in a deployment, a budget denies the surplus", under(t, "9", stateOf(aSet(2), newMachine("b", broken, registered),
			asked, a), denying(v1beta1.DisruptionReplace)), "deny m; replace b; wait 30s"},
		{"in a deployment, no machine can be spared", under(t, "9", stateOf(aSet(1), newMachine("b", toRemediate, registered),
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
