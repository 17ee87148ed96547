package machineset

import (
	"strings"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// If a surplus machine is about to be preserved, the set deletes neither this machine nor another one in its place.
//
// Rules: preserved-before-replaced, kept-machine-leaves-itself.
func TestMachinesDueForPreservationAreNotDeleted(t *testing.T) {
	withInstance := func(m *v1beta1.Machine) {
		m.Status.Instance = &v1beta1.InstanceStatus{State: v1beta1.InstanceRunning}
	}
	now, failed := annotated(v1beta1.AnnotationPreserve, v1beta1.PreserveNow), annotated(v1beta1.AnnotationPreserve,
		v1beta1.PreserveWhenFailed)
	for _, test := range []struct {
		name  string
		state State
		want  string
	}{
		{"failed", stateOf(aSet(2), newMachine("a", up), newMachine("b", broken, withInstance, failed)), "settled"},
		{"with a remediation request", stateOf(aSet(1), newMachine("a", toRemediate, withInstance, failed)), "settled"},
		{"a failed machine without an instance is not preserved",
			stateOf(aSet(1), newMachine("a", broken, failed)), "replace a"},
		{"healthy", stateOf(aSet(1), newMachine("a", up, withInstance, failed), newMachine("b", up, created(0))), "delete a"},
		{"surplus of one", stateOf(aSet(1), newMachine("a", up), newMachine("b", broken, withInstance, failed)), "settled"},
		{"surplus of two", stateOf(aSet(1), newMachine("a", up), newMachine("b", broken, withInstance, failed),
			newMachine("c", broken)), "delete c"},
		{"more preserved machines than surplus", stateOf(aSet(1), newMachine("a", up, withInstance, now),
			newMachine("b", up, withInstance, now)), "settled"},
		{"no replicas", stateOf(aSet(0), newMachine("a", up), newMachine("b", up, withInstance, now)), "delete a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Decide(test.state).String(); got != test.want {
				t.Errorf("plans %q, want %q", got, test.want)
			}
		})
	}
}

// Rule: preserved-count-towards-ceiling.
func TestPreservedMachinesCountTowardsTheLimit(t *testing.T) {
	state := stateOf(aSet(2))
	state.PreservedCount = 12
	if plan := Decide(state); plan.Create != 2 {
		t.Errorf("creates %d with 12 preserved and a limit of 14", plan.Create)
	}
	state.PreservedCount = 14
	plan := Decide(state)
	if plan.Create != 0 || plan.CreationBlocked.Reason != v1beta1.ReasonTooManyMachines ||
		!strings.Contains(plan.CreationBlocked.Message, "14 preserved") || plan.RequeueAfter != preservedPoll {
		t.Errorf("creates %d, reports %+v, waits %s", plan.Create, plan.CreationBlocked, plan.RequeueAfter)
	}
}

// Rule: preserved-count-towards-ceiling.
func TestPreservedMachinesOfSetAreFoundByLabels(t *testing.T) {
	set := aSet(1)
	set.Spec.Selector.MatchLabels[v1beta1.LabelTemplateHash] = "abc"
	preserved := annotated(v1beta1.AnnotationPreservedUntil, "2030-01-01T00:00:00Z")
	orphans := []v1beta1.Machine{
		*newMachine("a", abandoned, preserved), *newMachine("b", abandoned), *newMachine("c", abandoned, preserved, leaving),
		*newMachine("d", abandoned, preserved, otherLabels),
	}
	if n := countPreserved(set, orphans); n != 1 {
		t.Errorf("%d machines are counted, want 1", n)
	}
}
