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
		s.Availability = Availability{MinAvailable: least, InOtherSets: elsewhere}
		return s
	}
	inPlace := func(s State) State {
		s.Availability.UpToDate = true
		return s
	}
	updating := func(m *v1beta1.Machine) {
		m.Status.Phase = v1beta1.MachineUpdating
		setCondition(m, v1beta1.ConditionUpToDate, false, v1beta1.ReasonUpdating, 0)
	}
	for _, test := range []struct {
		name  string
		state State
		want  string
	}{
		{"no machine can be spared", needed(3, 0, stateOf(aSet(1), several("m", 3, up)...)), "keep m0 m1; wait 1s"},
		{"one machine can be spared",
			needed(2, 0, stateOf(aSet(1), newMachine("a", up, older), newMachine("b", up, old), newMachine("c", up))),
			"delete a; keep b; wait 1s"},
		{"other sets have enough available machines", needed(3, 2, stateOf(aSet(1), several("m", 3, up)...)), "delete m0 m1"},
		{"fewer machines are available than needed",
			needed(9, 2, stateOf(aSet(1), several("m", 2, up)...)), "keep m0; wait 1s"},
		{"unavailable machines are deleted",
			needed(9, 0, stateOf(aSet(1), newMachine("a", up), newMachine("b", notReady), newMachine("c", launched))),
			"delete b c"},
		{"a machine that is not available yet is deleted",
			needed(9, 0, stateOf(aSet(1, minReady(60)), newMachine("a", readyFor(50*time.Second), older), newMachine("b", up))),
			"delete a; wait 10s"},
		{"a delete mark does not override the minimum",
			needed(2, 0, stateOf(aSet(2), newMachine("a", up, marked), newMachine("b", up), newMachine("c", launched))),
			"delete c"},
		{"a failed machine is deleted in place of a marked one",
			needed(2, 0, stateOf(aSet(2), newMachine("a", up, marked), newMachine("b", up), newMachine("c", broken))),
			"delete c"},
		{"an unlaunchable machine is deleted in place of a marked one",
			needed(2, 0, stateOf(aSet(2), newMachine("a", up, marked), newMachine("b", up), newMachine("c", misconfigured))),
			"delete c"},
		{"a paused machine is not deleted in place of a marked one",
			needed(2, 0, stateOf(aSet(2), newMachine("a", up, marked), newMachine("b", up),
				newMachine("c", broken, annotated(v1beta1.AnnotationPaused, "")))), "keep a; wait 1s"},
		{"an available machine with a remediation request is replaced",
			needed(3, 0, stateOf(aSet(2), newMachine("a", up, marked), newMachine("b", up),
				newMachine("c", toRemediate, young))), "keep a; replace c; wait 1s"},
		{"all machines of a set are surplus", needed(1, 0, stateOf(aSet(0), newMachine("a", up, older), newMachine("b", up))),
			"delete a; keep b; wait 1s"},
		{"an autoscaler's delete mark stays meanwhile",
			needed(2, 0, stateOf(aSet(1),
				newMachine("a", up, annotated(v1beta1.AnnotationDeleteMachine, autoscalerValue(time.Hour))), newMachine("b", up))),
			"keep a; wait 1s"},
		{"in place, a machine being updated does not count",
			inPlace(needed(1, 0, stateOf(aSet(1), newMachine("a", up, older), newMachine("b", up, updating)))),
			"delete b"},
		{"with other strategies, a machine being updated counts",
			needed(1, 0, stateOf(aSet(1), newMachine("a", up, older), newMachine("b", up, updating))), "delete a"},
		{"a standalone set", stateOf(aSet(1), several("m", 3, up)...), "delete m0 m1"},
		{"a deployment that needs no available machine",
			needed(0, 0, stateOf(aSet(0), several("m", 2, up)...)), "delete m0 m1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Decide(test.state).String(); got != test.want {
				t.Errorf("\n got: %s\nwant: %s", got, test.want)
			}
		})
	}
}

// Rule: set-keeps-surge.
func TestNoMachineIsCreatedBeyondDeploymentCapacity(t *testing.T) {
	within := func(capacity int, s State) State {
		s.OverCapacity = int(s.Set.ReplicasOrDefault()) - capacity
		return s
	}
	for _, test := range []struct {
		name  string
		state State
		want  string
	}{
		{"capacity for all missing machines", within(3, stateOf(aSet(3), newMachine("a", up))), "create 2"},
		{"capacity for one machine", within(2, stateOf(aSet(3), newMachine("a", up))), "create 1; wait 1s"},
		{"no capacity", within(1, stateOf(aSet(3), newMachine("a", up))), "wait 1s"},
		{"capacity exceeded", within(-2, stateOf(aSet(3), newMachine("a", up))), "wait 1s"},
		{"a machine being deleted needs no capacity",
			within(2, stateOf(aSet(2), newMachine("a", up), newMachine("b", up, leaving))),
			"create 1"},
		{"an adopted machine needs capacity",
			within(2, stateOf(aSet(3), newMachine("a", up), newMachine("b", up, abandoned))),
			"adopt b; wait 1s"},
		{"a failed machine is replaced without capacity",
			within(1, stateOf(aSet(2), newMachine("a", up), newMachine("b", broken))),
			"replace b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Decide(test.state).String(); got != test.want {
				t.Errorf("\n got: %s\nwant: %s", got, test.want)
			}
		})
	}
}
