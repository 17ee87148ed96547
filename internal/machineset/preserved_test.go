package machineset

import (
	"strings"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// S-15, S-17: a machine that is about to be set aside is deleted neither as failed nor as one too many, and no other one in
// its place.
func TestMachinesDueForPreservationAreNotDeleted(t *testing.T) {
	withInstance := func(m *v1beta1.Machine) { m.Status.Instance = &v1beta1.InstanceStatus{State: v1beta1.InstanceRunning} }
	now, failed := annotated(v1beta1.AnnotationPreserve, v1beta1.PreserveNow), annotated(v1beta1.AnnotationPreserve, v1beta1.PreserveWhenFailed)
	for _, test := range []struct {
		name  string
		state State
		want  string
	}{
		{"failed", stateOf(aSet(2), newMachine("a", up), newMachine("b", broken, withInstance, failed)), "rest"},
		{"to be remediated", stateOf(aSet(1), newMachine("a", toRemediate, withInstance, failed)), "rest"},
		{"without an instance there is nothing to look at", stateOf(aSet(1), newMachine("a", broken, failed)), "replace a"},
		{"healthy", stateOf(aSet(1), newMachine("a", up, withInstance, failed), newMachine("b", up, created(0))), "delete a"},
		{"one too many", stateOf(aSet(1), newMachine("a", up), newMachine("b", broken, withInstance, failed)), "rest"},
		{"two too many", stateOf(aSet(1), newMachine("a", up), newMachine("b", broken, withInstance, failed), newMachine("c", broken)), "delete c"},
		{"more leave than are too many", stateOf(aSet(1), newMachine("a", up, withInstance, now), newMachine("b", up, withInstance, now)), "rest"},
		{"to none", stateOf(aSet(0), newMachine("a", up), newMachine("b", up, withInstance, now)), "delete a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Decide(test.state).String(); got != test.want {
				t.Errorf("plans %q, want %q", got, test.want)
			}
		})
	}
}

// S-18: what is kept aside counts towards the ceiling, whose message says so.
func TestPreservedMachinesCountTowardsTheLimit(t *testing.T) {
	state := stateOf(aSet(2))
	state.Preserved = 12
	if plan := Decide(state); plan.Create != 2 {
		t.Errorf("makes %d with 12 kept aside and room for 14", plan.Create)
	}
	state.Preserved = 14
	plan := Decide(state)
	if plan.Create != 0 || plan.CreationBlocked.Reason != v1beta1.ReasonTooManyMachines || !strings.Contains(plan.CreationBlocked.Message, "14 are, kept aside") || plan.Wait != preservedPoll {
		t.Errorf("makes %d, says %+v, waits %s", plan.Create, plan.CreationBlocked, plan.Wait)
	}
}

// S-18: those are counted that would be the set's, had they not lost the labels of sets.
func TestPreservedMachinesOfASetAreFoundByLabels(t *testing.T) {
	set := aSet(1)
	set.Spec.Selector.MatchLabels[v1beta1.LabelTemplateHash] = "abc"
	preserved := annotated(v1beta1.AnnotationPreservedUntil, "2030-01-01T00:00:00Z")
	orphans := []v1beta1.Machine{
		*newMachine("a", abandoned, preserved), *newMachine("b", abandoned), *newMachine("c", abandoned, preserved, leaving), *newMachine("d", abandoned, preserved, otherLabels),
	}
	if n := countPreserved(set, orphans); n != 1 {
		t.Errorf("%d are counted, not 1", n)
	}
}
