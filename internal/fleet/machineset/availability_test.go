package machineset

import (
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: set-keeps-deployment-available.
func TestAvailableMachinesStayWhileTheDeploymentNeedsThem(t *testing.T) {
	marked := annotated(v1beta1.AnnotationDeleteMachine, "")
	older, old, young := created(3*time.Hour), created(2*time.Hour), created(time.Minute)
	needed := func(least, elsewhere int, s State) State {
		s.Availability = Availability{MinAvailable: least, Elsewhere: elsewhere}
		return s
	}
	inPlace := func(s State) State {
		s.Availability.UpToDate = true
		return s
	}
	changing := func(m *v1beta1.Machine) {
		m.Status.Phase = v1beta1.MachineUpdating
		setCondition(m, v1beta1.ConditionUpToDate, false, v1beta1.ReasonUpdating, 0)
	}
	for _, test := range []struct {
		name  string
		state State
		want  string
	}{
		{"no machine is spare", needed(3, 0, stateOf(aSet(1), several("m", 3, up)...)), "keep m0 m1; wait 1s"},
		{"one is", needed(2, 0, stateOf(aSet(1), newMachine("a", up, older), newMachine("b", up, old), newMachine("c", up))),
			"delete a; keep b; wait 1s"},
		{"others make up for them", needed(3, 2, stateOf(aSet(1), several("m", 3, up)...)), "delete m0 m1"},
		{"fewer than needed already", needed(9, 2, stateOf(aSet(1), several("m", 2, up)...)), "keep m0; wait 1s"},
		{"what is not available goes",
			needed(9, 0, stateOf(aSet(1), newMachine("a", up), newMachine("b", notReady), newMachine("c", launched))),
			"delete b c"},
		{"what is not available yet goes",
			needed(9, 0, stateOf(aSet(1, minReady(60)), newMachine("a", readyFor(50*time.Second), older), newMachine("b", up))),
			"delete a; wait 10s"},
		{"a mark is no reason to fall below",
			needed(2, 0, stateOf(aSet(2), newMachine("a", up, marked), newMachine("b", up), newMachine("c", launched))),
			"delete c"},
		{"what failed goes in its place",
			needed(2, 0, stateOf(aSet(2), newMachine("a", up, marked), newMachine("b", up), newMachine("c", broken))),
			"delete c"},
		{"what is refused goes in its place",
			needed(2, 0, stateOf(aSet(2), newMachine("a", up, marked), newMachine("b", up), newMachine("c", misconfigured))),
			"delete c"},
		{"what nobody may touch does not",
			needed(2, 0, stateOf(aSet(2), newMachine("a", up, marked), newMachine("b", up),
				newMachine("c", broken, annotated(v1beta1.AnnotationPaused, "")))), "keep a; wait 1s"},
		{"what is available and must be remediated goes for that reason",
			needed(3, 0, stateOf(aSet(2), newMachine("a", up, marked), newMachine("b", up),
				newMachine("c", toRemediate, young))), "keep a; replace c; wait 1s"},
		{"all of a set", needed(1, 0, stateOf(aSet(0), newMachine("a", up, older), newMachine("b", up))),
			"delete a; keep b; wait 1s"},
		{"an autoscaler's mark stays meanwhile",
			needed(2, 0, stateOf(aSet(1),
				newMachine("a", up, annotated(v1beta1.AnnotationDeleteMachine, autoscalerValue(time.Hour))), newMachine("b", up))),
			"keep a; wait 1s"},
		{"in place, what is being updated counts for nothing",
			inPlace(needed(1, 0, stateOf(aSet(1), newMachine("a", up, older), newMachine("b", up, changing)))),
			"delete b"},
		{"otherwise it counts", needed(1, 0, stateOf(aSet(1), newMachine("a", up, older), newMachine("b", up, changing))),
			"delete a"},
		{"a set alone", stateOf(aSet(1), several("m", 3, up)...), "delete m0 m1"},
		{"a deployment that needs none", needed(0, 0, stateOf(aSet(0), several("m", 2, up)...)), "delete m0 m1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Decide(test.state).String(); got != test.want {
				t.Errorf("\n got: %s\nwant: %s", got, test.want)
			}
		})
	}
}

// Rule: set-keeps-surge.
func TestNoMachineIsCreatedBeyondTheDeploymentsCapacity(t *testing.T) {
	within := func(capacity int, s State) State {
		s.OverCapacity = int(s.Set.ReplicasOrDefault()) - capacity
		return s
	}
	for _, test := range []struct {
		name  string
		state State
		want  string
	}{
		{"capacity for all", within(3, stateOf(aSet(3), newMachine("a", up))), "create 2"},
		{"capacity for one", within(2, stateOf(aSet(3), newMachine("a", up))), "create 1; wait 1s"},
		{"none", within(1, stateOf(aSet(3), newMachine("a", up))), "wait 1s"},
		{"fewer than there are", within(-2, stateOf(aSet(3), newMachine("a", up))), "wait 1s"},
		{"what is being deleted takes none", within(2, stateOf(aSet(2), newMachine("a", up), newMachine("b", up, leaving))),
			"create 1"},
		{"what is adopted does", within(2, stateOf(aSet(3), newMachine("a", up), newMachine("b", up, abandoned))),
			"adopt b; wait 1s"},
		{"a failed one is replaced anyway", within(1, stateOf(aSet(2), newMachine("a", up), newMachine("b", broken))),
			"replace b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Decide(test.state).String(); got != test.want {
				t.Errorf("\n got: %s\nwant: %s", got, test.want)
			}
		})
	}
}
