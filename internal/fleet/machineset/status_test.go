package machineset

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestStatus(t *testing.T) {
	frozenBefore := func(s *v1beta1.MachineSet) {
		s.Status.Conditions = []metav1.Condition{
			{Type: v1beta1.ConditionFrozen, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonOvershoot,
				Message: "12 machines, 9 wanted", LastTransitionTime: metav1.NewTime(epoch.Add(-time.Hour))},
			{Type: v1beta1.ConditionReplicaFailure, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonTooManyMachines,
				LastTransitionTime: metav1.NewTime(epoch.Add(-time.Hour))},
		}
	}
	for _, test := range []struct {
		name    string
		state   State
		failure ConditionReason
	}{
		{name: "settled", state: stateOf(aSet(2), several("m", 2, up)...)},
		{name: "without-machines", state: stateOf(aSet(0))},
		{name: "coming-up", state: stateOf(aSet(4, minReady(60)), newMachine("a", up), newMachine("b", readyFor(time.Second)),
			newMachine("c", notReady), newMachine("d"))},
		{name: "scaling-down", state: stateOf(aSet(1), newMachine("a", up), newMachine("b", up),
			newMachine("c", up, leaving))},
		{name: "create-failed", state: stateOf(aSet(2), newMachine("a", up)),
			failure: ConditionReason{v1beta1.ReasonMachineCreateFailed, "create machine: exceeded quota"}},
		{name: "failed-machines",
			state: stateOf(aSet(12), append(several("m", 12, broken), newMachine("refused", misconfigured))...)},
		{name: "frozen-by-overshoot", state: stateOf(aSet(3, frozen, frozenBefore), newMachine("a", up))},
		{name: "thawed", state: stateOf(aSet(1, frozenBefore), newMachine("a", up))},
		{name: "adoption-skipped", state: stateOf(aSet(0), newMachine("a", abandoned), newMachine("b", abandoned))},
		{name: "being-deleted", state: stateOf(aSet(1, beingDeleted), newMachine("a", up, leaving),
			newMachine("b", abandoned))},
		{name: "unlabelled", state: stateOf(aSet(1, func(s *v1beta1.MachineSet) {
			s.Spec.Template.ObjectMeta.Labels["new"] = "x"
		}), newMachine("a", up))},
		{name: "invalid-selector",
			state: stateOf(aSet(3, func(s *v1beta1.MachineSet) { s.Spec.Selector = metav1.LabelSelector{} }),
				newMachine("a", up))},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := yaml.Marshal(Status(test.state, Decide(test.state), test.failure))
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "status-"+test.name+".yaml")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Rule set-observed-generation: the set updates observedGeneration when it has carried out the spec, or when it reports
// in its status why it cannot. If the status is written before that, observedGeneration stays the same.
func TestGenerationIsObservedAfterTheSetActed(t *testing.T) {
	failing := stateOf(aSet(2), newMachine("a", up))
	failing.NextCreation, failing.CreationFailure = epoch.Add(time.Minute), ConditionReason{v1beta1.ReasonMachineCreateFailed,
		"quota"}
	needed := stateOf(aSet(1), newMachine("a", up), newMachine("b", up))
	needed.Availability = Availability{MinAvailable: 2}
	for _, test := range []struct {
		name      string
		state     State
		postponed bool
		want      int64
	}{
		{"nothing to do", stateOf(aSet(1), newMachine("a", up)), false, 7},
		{"a machine is missing", stateOf(aSet(2), newMachine("a", up)), false, 3},
		{"a machine is surplus", stateOf(aSet(1), newMachine("a", up), newMachine("b", up)), false, 3},
		{"a machine is surplus, and the set waits for its cache", stateOf(aSet(1), newMachine("a", up), newMachine("b", up)),
			true, 3},
		{"a machine is not in sync with the template",
			stateOf(aSet(1), newMachine("a", up, annotated(v1beta1.AnnotationLastAppliedTemplate, "{}"))), false, 3},
		{"frozen", stateOf(aSet(2, frozen), newMachine("a", up)), false, 7},
		{"creation backs off", failing, false, 7},
		{"the deployment needs the surplus machine", needed, false, 7},
		{"being deleted", stateOf(aSet(2, beingDeleted), newMachine("a", up)), false, 7},
	} {
		test.state.Set.Status.ObservedGeneration = 3
		plan := Decide(test.state)
		if test.postponed {
			plan = plan.withoutCounting(time.Second)
		}
		if got := Status(test.state, plan, ConditionReason{}).ObservedGeneration; got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

// Rule: status-writes-spaced.
func TestStatusDoesNotChangeWithTimeAlone(t *testing.T) {
	s := stateOf(aSet(3), newMachine("a", up), newMachine("b", broken), newMachine("c", abandoned))
	s.Set.Status = Status(s, Decide(s), ConditionReason{})
	s.Now = s.Now.Add(time.Hour)
	again := Status(s, Decide(s), ConditionReason{})
	if diff := cmp.Diff(s.Set.Status, again); diff != "" {
		t.Errorf("an hour later, without other changes:\n%s", diff)
	}
}

func TestReplicaFailureEndsWithTheFailure(t *testing.T) {
	set := aSet(1, func(s *v1beta1.MachineSet) { s.Status.Conditions = nil })
	s := stateOf(set, newMachine("a", up, leaving))
	set.Status = Status(s, Decide(s), ConditionReason{v1beta1.ReasonMachineCreateFailed, "quota"})
	if !meta.IsStatusConditionTrue(set.Status.Conditions, v1beta1.ConditionReplicaFailure) {
		t.Fatal("ReplicaFailure is not True after a failure")
	}
	set.Status = Status(s, Decide(s), ConditionReason{})
	c := meta.FindStatusCondition(set.Status.Conditions, v1beta1.ConditionReplicaFailure)
	if c.Status != metav1.ConditionFalse || c.Reason != v1beta1.ReasonNoFailure || c.Message != "" {
		t.Errorf("after the failure, ReplicaFailure is %+v", c)
	}
}

// Rule: status-writes-spaced.
func TestUrgent(t *testing.T) {
	conditions := func(pairs ...string) []metav1.Condition {
		var list []metav1.Condition
		for _, p := range pairs {
			f := strings.Split(p, "/")
			list = append(list, metav1.Condition{Type: f[0], Status: metav1.ConditionStatus(f[1]), Reason: f[2]})
		}
		return list
	}
	for _, test := range []struct {
		name          string
		before, after []metav1.Condition
		want          bool
	}{
		{"nothing new", conditions("A/True/x"), conditions("A/True/x"), false},
		{"a new condition", nil, conditions("A/False/x"), true},
		{"another status", conditions("A/True/x"), conditions("A/False/x"), true},
		{"true for another reason", conditions("A/True/x"), conditions("A/True/y"), true},
		{"false for another reason", conditions("A/False/x"), conditions("A/False/y"), false},
		{"a set that begins to scale", conditions("ScalingUp/False/x"), conditions("ScalingUp/True/y"), true},
		{"a set that has scaled", conditions("ScalingDown/True/x"), conditions("ScalingDown/False/y"), false},
		{"the first status", nil, conditions("ScalingDown/False/y"), true},
	} {
		if got := isUrgent(test.before, test.after); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
