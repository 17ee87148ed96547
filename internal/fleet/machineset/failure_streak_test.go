package machineset

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func unjoined(m *v1beta1.Machine) {
	launched(m)
	m.Status.Phase = v1beta1.MachineFailed
	m.Status.FailureReason, m.Status.FailureMessage = v1beta1.FailureJoinClusterTimeout, "there is no node"
}

func remediateBeforeReady(m *v1beta1.Machine) {
	launched(m)
	setCondition(m, v1beta1.ConditionRemediationRequested, true, v1beta1.ReasonMachineHealthCheck, time.Minute)
}

func unlaunchedFailure(m *v1beta1.Machine) {
	m.Status.Phase = v1beta1.MachineFailed
	m.Status.FailureReason = v1beta1.FailureInsufficientResources
}

func conditionOf(status v1beta1.MachineSetStatus, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// Rule: replacements-fail-alike-stop.
func TestReplacementStopsWhenMachinesFailForTheSameReason(t *testing.T) {
	older, younger := created(2*time.Hour), created(time.Minute)
	with := func(change func(*v1beta1.MachineSet)) *v1beta1.MachineSet {
		set := aSet(3)
		change(set)
		return set
	}
	for _, tc := range []struct {
		name     string
		replaced []*v1beta1.Machine
		set      *v1beta1.MachineSet
		machines []*v1beta1.Machine
		want     bool
	}{
		{"three machines failed", several("m", 3, unjoined), nil, nil, true},
		{"only two machines failed", several("m", 2, unjoined), nil, nil, false},
		{"a check marked them", several("m", 3, remediateBeforeReady), nil, nil, true},
		{"for different reasons", append(several("m", 2, unjoined), several("n", 2, remediateBeforeReady)...), nil, nil,
			false},
		{"for another reason at first", append(several("m", 1, remediateBeforeReady), several("n", 3, unjoined)...), nil,
			nil, true},
		{"they never had an instance", several("m", 3, unlaunchedFailure), nil, nil, false},
		{"they had joined", several("m", 3, unhealthy, toRemediate), nil, nil, false},
		{"their instances vanished", several("m", 3, lost), nil, nil, false},
		{"an annotation requested their replacement", several("m", 3, launched, func(m *v1beta1.Machine) {
			setCondition(m, v1beta1.ConditionRemediationRequested, true, v1beta1.ReasonRemediateAnnotation, 0)
		}), nil, nil, false},
		{"a machine of the same age joined", several("m", 3, unjoined), nil, several("n", 1, up), false},
		{"an older machine is Ready", several("m", 3, unjoined), nil, several("n", 1, up, older), true},
		{"a younger machine has not joined", several("m", 3, unjoined), nil, several("n", 1, launched, younger), true},
		{"a younger machine joined and is being deleted", several("m", 3, unjoined), nil,
			several("n", 1, up, younger, leaving), true},
		{"the template changed", several("m", 3, unjoined), with(func(s *v1beta1.MachineSet) {
			s.Spec.Template.Spec.ClassRef.Name = "other"
		}), nil, false},
		{"replicas changed", several("m", 3, unjoined), aSet(5), nil, true},
		{"replicas are 0", several("m", 3, unjoined), aSet(0), nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var streak failureStreak
			streak.observe(aSet(3), tc.replaced)
			for _, m := range tc.replaced {
				streak.add([]*v1beta1.Machine{m}, epoch)
			}
			if tc.set == nil {
				tc.set = aSet(3)
			}
			streak.observe(tc.set, tc.machines)
			if streak.stopped() != tc.want {
				t.Errorf("stopped: %t, want %t: %+v", streak.stopped(), tc.want, streak)
			}
		})
	}
}

// Rule: replacements-fail-alike-stop.
func TestStoppedSetReplacesOneMachinePerHour(t *testing.T) {
	annotatedRemediate := func(m *v1beta1.Machine) {
		unjoined(m)
		m.Annotations = map[string]string{v1beta1.AnnotationRemediate: ""}
	}
	var streak failureStreak
	streak.observe(aSet(4), nil)
	streak.add(several("m", 3, unjoined), epoch.Add(-10*time.Minute))
	for _, tc := range []struct {
		name     string
		since    time.Duration
		machines []*v1beta1.Machine
		want     string
	}{
		{"no machine before that", 10 * time.Minute, several("n", 4, unjoined), "wait 50m0s"},
		{"one machine after an hour", time.Hour, several("n", 4, unjoined), "replace n0"},
		{"a machine with the annotation at once", 10 * time.Minute,
			append(several("n", 3, unjoined), newMachine("x", annotatedRemediate)), "replace x; wait 50m0s"},
		{"a machine whose instance is lost at once", 10 * time.Minute,
			append(several("n", 3, up), newMachine("x", lost)), "replace x"},
		{"no machine must be replaced", 10 * time.Minute, several("n", 4, up), "settled"},
		{"machines are missing", 10 * time.Minute, several("n", 3, unjoined), "create 1; wait 50m0s"},
	} {
		s := stateOf(aSet(4), tc.machines...)
		s.MaxInFlight = 4
		s.FailureStreak = streak
		s.FailureStreak.lastFailure = epoch.Add(-tc.since)
		p := Decide(s)
		if got := p.String(); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
		failure := conditionOf(Status(s, p, ConditionReason{}), v1beta1.ConditionReplicaFailure)
		if failure.Status != metav1.ConditionTrue || failure.Reason != v1beta1.ReasonReplacementsFailing ||
			!strings.Contains(failure.Message, "JoinClusterTimeout: there is no node") {
			t.Errorf("%s: ReplicaFailure is %+v", tc.name, failure)
		}
	}
}

// Rule: replacements-fail-alike-stop.
func TestStoppedSetStaysStoppedAfterRestart(t *testing.T) {
	var streak failureStreak
	set := aSet(3)
	streak.observe(set, nil)
	streak.add(several("m", 3, unjoined), epoch)
	s := stateOf(set, several("n", 3, unjoined)...)
	s.FailureStreak = streak
	set.Status = Status(s, Decide(s), ConditionReason{})

	var next failureStreak
	next.observe(set, several("n", 3, unjoined))
	s.FailureStreak = next
	if p := Decide(s); !next.stopped() || Status(s, p, ConditionReason{}).Conditions == nil {
		t.Fatalf("after the restart the streak is %+v", next)
	}
	if was, is := conditionOf(set.Status, v1beta1.ConditionReplicaFailure),
		conditionOf(Status(s, Decide(s), ConditionReason{}), v1beta1.ConditionReplicaFailure); was != is {
		t.Errorf("the condition changes from %+v to %+v", was, is)
	}
	next.add(several("n", 1, unjoined), epoch)
	if next.message != streak.message || !next.stopped() {
		t.Errorf("after another failure the streak is %+v", next)
	}
	next.observe(set, several("o", 1, up, created(-time.Minute)))
	if next.stopped() {
		t.Error("a machine that joined does not end the streak")
	}
}
