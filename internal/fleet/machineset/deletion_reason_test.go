package machineset

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
)

// Rule: deletions-state-reasons.
func TestReasonsOfDeletions(t *testing.T) {
	outdated := func(s *State) { s.IsOutdated = true }
	scaledDown := func(n int) func(*State) { return func(s *State) { s.IsOutdated, s.ScaleDown = true, n } }
	standalone := func(s *State) { s.Standalone, s.MaxReplacing = true, 1 }
	expired := annotated(v1beta1.AnnotationReplace, disruption.ExpiredValue)
	two := several("m", 2, up, registered)
	with := func(s State, change ...func(*State)) State {
		for _, f := range change {
			f(&s)
		}
		return s
	}
	for name, test := range map[string]struct {
		state State
		want  map[string]string
	}{
		"a scale-down": {with(stateOf(aSet(0), two...)), map[string]string{"m0": "ScaleDown", "m1": "ScaleDown"}},
		"a rollout": {with(stateOf(aSet(0), two...), outdated),
			map[string]string{"m0": "Rollout", "m1": "Rollout"}},
		"a rollout and a scale-down": {with(stateOf(aSet(0), two...), scaledDown(1)),
			map[string]string{"m0": "ScaleDown", "m1": "Rollout"}},
		"a scale-down that budgets would deny as a rollout": {withBudget(t, "1", stateOf(aSet(0), two...), scaledDown(1)),
			map[string]string{"m0": "Rollout", "m1": "ScaleDown"}},
		"a rollout within budgets": {withBudget(t, "1", stateOf(aSet(0), two...), outdated), map[string]string{"m0": "Rollout"}},
		"a requested replacement": {with(stateOf(aSet(1), newMachine("a", up, marked), newMachine("b", up))),
			map[string]string{"a": "Replace"}},
		"an expired machine": {with(stateOf(aSet(1), newMachine("a", up, expired), newMachine("b", up))),
			map[string]string{"a": "Expiry"}},
		"a marked machine of an old revision": {with(stateOf(aSet(0), newMachine("a", up, marked)), outdated),
			map[string]string{"a": "Replace"}},
		"a requested replacement in a standalone set": {with(stateOf(aSet(1), newMachine("a", up, marked),
			newMachine("b", up)), standalone), map[string]string{"a": "Replace"}},
		"an expired machine in a standalone set": {with(stateOf(aSet(1), newMachine("a", up, expired),
			newMachine("b", up)), standalone), map[string]string{"a": "Expiry"}},
		"a scale-down of a standalone set": {with(stateOf(aSet(0), newMachine("a", up, marked), newMachine("b", up)),
			standalone), map[string]string{"a": "ScaleDown", "b": "ScaleDown"}},
	} {
		t.Run(name, func(t *testing.T) {
			plan, got := Decide(test.state), map[string]string{}
			for _, m := range plan.Delete {
				got[m.Name] = plan.reasonsToDelete[m.UID]
			}
			if !maps.Equal(got, test.want) {
				t.Errorf("got the reasons %v, want %v", got, test.want)
			}
		})
	}
}

// Rule: deletions-state-reasons.
func TestReasonsOfRemediations(t *testing.T) {
	for name, test := range map[string]struct {
		machine *v1beta1.Machine
		want    string
	}{
		"a failed machine":          {newMachine("m", broken), string(v1beta1.FailureJoinClusterTimeout)},
		"an unhealthy machine":      {newMachine("m", toRemediate), v1beta1.ReasonMachineHealthCheck},
		"a machine marked by hand":  {newMachine("m", markedByHand), v1beta1.ReasonRemediateAnnotation},
		"an interrupted machine":    {newMachine("m", interrupted), v1beta1.ReasonPreemptionNotice},
		"a machine without problem": {newMachine("m", up), ""},
	} {
		if got := remediationReason(test.machine); got != test.want {
			t.Errorf("%s: the reason is %q, want %q", name, got, test.want)
		}
	}
}

// Rule: deletions-state-reasons.
func TestEventsNameReasonsAndMachines(t *testing.T) {
	var d deletions
	for i := range 12 {
		d.add("Rollout", &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m%02d", i)}})
	}
	d.add(ScaleDownReason, &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "x"}})
	want := []string{
		"Deleted 12 machines (reason Rollout): m00, m01, m02, m03, m04, m05, m06, m07, m08, m09 and 2 more.",
		"Deleted machine x (reason ScaleDown).",
	}
	got := d.messages("Deleted")
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for machine, reason := range map[string]string{"m00": "Rollout", "m09": "Rollout", "x": "ScaleDown", "m0": "", "m10": "",
		"more": "", "machines": ""} {
		stated := ""
		for _, message := range got {
			if r, found := StatedReason(reasonMachinesDeleted, message, machine); found {
				stated = r
			}
		}
		if _, found := StatedReason(reasonMachinesCreated, got[1], machine); found || stated != reason {
			t.Errorf("the reason of machine %s is %q, want %q", machine, stated, reason)
		}
	}
}
