package machineset

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// unjoined has an instance, and failed because no Ready node came of it.
func unjoined(m *v1beta1.Machine) {
	launched(m)
	m.Status.Phase = v1beta1.MachineFailed
	m.Status.FailureReason, m.Status.FailureMessage = v1beta1.FailureJoinClusterTimeout, "there is no node"
}

// givenUp has an instance, and a health check wants it replaced before it was a Ready node.
func givenUp(m *v1beta1.Machine) {
	launched(m)
	setCondition(m, v1beta1.ConditionRemediationRequested, true, v1beta1.ReasonMachineHealthCheck, time.Minute)
}

// unlaunchedFailure failed without an instance.
func unlaunchedFailure(m *v1beta1.Machine) {
	m.Status.Phase = v1beta1.MachineFailed
	m.Status.FailureReason = v1beta1.FailureInsufficientResources
}

// conditionOf returns a condition of a status, an empty one if there is none.
func conditionOf(status v1beta1.MachineSetStatus, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// Rule: replacements-fail-alike-stop.
func TestReplacementStopsWhenMachinesFailInTheSameWay(t *testing.T) {
	older, younger := created(2*time.Hour), created(time.Minute)
	with := func(change func(*v1beta1.MachineSet)) *v1beta1.MachineSet {
		set := aSet(3)
		change(set)
		return set
	}
	for _, tc := range []struct {
		name     string
		replaced []*v1beta1.Machine
		// set and machines are what a pass finds after that.
		set      *v1beta1.MachineSet
		machines []*v1beta1.Machine
		want     bool
	}{
		{"three did", several("m", 3, unjoined), nil, nil, true},
		{"only two did", several("m", 2, unjoined), nil, nil, false},
		{"a check gave them up", several("m", 3, givenUp), nil, nil, true},
		{"for different reasons", append(several("m", 2, unjoined), several("n", 2, givenUp)...), nil, nil, false},
		{"for another reason at first", append(several("m", 1, givenUp), several("n", 3, unjoined)...), nil, nil, true},
		{"they never had an instance", several("m", 3, unlaunchedFailure), nil, nil, false},
		{"they had joined", several("m", 3, unhealthy, toRemediate), nil, nil, false},
		{"their instances vanished", several("m", 3, lost), nil, nil, false},
		{"a person wanted them replaced", several("m", 3, launched, func(m *v1beta1.Machine) {
			setCondition(m, v1beta1.ConditionRemediationRequested, true, v1beta1.ReasonRemediateAnnotation, 0)
		}), nil, nil, false},
		{"one that is as young joined", several("m", 3, unjoined), nil, several("n", 1, up), false},
		{"an older one is Ready", several("m", 3, unjoined), nil, several("n", 1, up, older), true},
		{"a younger one has not joined", several("m", 3, unjoined), nil, several("n", 1, launched, younger), true},
		{"a younger one joined, and leaves", several("m", 3, unjoined), nil, several("n", 1, up, younger, leaving), true},
		{"the template changed", several("m", 3, unjoined), with(func(s *v1beta1.MachineSet) {
			s.Spec.Template.Spec.ClassRef.Name = "other"
		}), nil, false},
		{"the number of machines changed", several("m", 3, unjoined), aSet(5), nil, true},
		{"no machine is wanted any more", several("m", 3, unjoined), aSet(0), nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var row failingRow
			row.observe(aSet(3), tc.replaced)
			for _, m := range tc.replaced {
				row.add([]*v1beta1.Machine{m}, epoch)
			}
			if tc.set == nil {
				tc.set = aSet(3)
			}
			row.observe(tc.set, tc.machines)
			if row.stopped() != tc.want {
				t.Errorf("stopped: %t, want %t: %+v", row.stopped(), tc.want, row)
			}
		})
	}
}

// Rule: replacements-fail-alike-stop.
func TestASetThatHasStoppedReplacesOneMachineAnHour(t *testing.T) {
	asked := func(m *v1beta1.Machine) {
		unjoined(m)
		m.Annotations = map[string]string{v1beta1.AnnotationRemediate: ""}
	}
	var row failingRow
	row.observe(aSet(4), nil)
	row.add(several("m", 3, unjoined), epoch.Add(-10*time.Minute))
	for _, tc := range []struct {
		name     string
		since    time.Duration
		machines []*v1beta1.Machine
		want     string
	}{
		{"none before", 10 * time.Minute, several("n", 4, unjoined), "wait 50m0s"},
		{"one after an hour", time.Hour, several("n", 4, unjoined), "replace n0"},
		{"a person asks", 10 * time.Minute, append(several("n", 3, unjoined), newMachine("x", asked)), "replace x; wait 50m0s"},
		{"one whose instance is lost", 10 * time.Minute, append(several("n", 3, up), newMachine("x", lost)), "replace x"},
		{"none is to be replaced", 10 * time.Minute, several("n", 4, up), "settled"},
		{"machines are missing", 10 * time.Minute, several("n", 3, unjoined), "create 1; wait 50m0s"},
	} {
		s := stateOf(aSet(4), tc.machines...)
		s.MaxInFlight = 4
		s.Failing = row
		s.Failing.last = epoch.Add(-tc.since)
		p := Decide(s)
		if got := p.String(); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
		failure := conditionOf(Status(s, p, Reason{}), v1beta1.ConditionReplicaFailure)
		if failure.Status != metav1.ConditionTrue || failure.Reason != v1beta1.ReasonReplacementsFailing ||
			!strings.Contains(failure.Message, "JoinClusterTimeout: there is no node") {
			t.Errorf("%s: ReplicaFailure is %+v", tc.name, failure)
		}
	}
}

// The condition carries the stop over a restart. Nothing is written for that.
//
// Rule: replacements-fail-alike-stop.
func TestASetThatHasStoppedStaysSoAfterARestart(t *testing.T) {
	var row failingRow
	set := aSet(3)
	row.observe(set, nil)
	row.add(several("m", 3, unjoined), epoch)
	s := stateOf(set, several("n", 3, unjoined)...)
	s.Failing = row
	set.Status = Status(s, Decide(s), Reason{})

	var next failingRow
	next.observe(set, several("n", 3, unjoined))
	s.Failing = next
	if p := Decide(s); !next.stopped() || Status(s, p, Reason{}).Conditions == nil {
		t.Fatalf("it is %+v", next)
	}
	if was, is := conditionOf(set.Status, v1beta1.ConditionReplicaFailure),
		conditionOf(Status(s, Decide(s), Reason{}), v1beta1.ConditionReplicaFailure); was != is {
		t.Errorf("the condition changes from %+v to %+v", was, is)
	}
	next.add(several("n", 1, unjoined), epoch)
	if next.message != row.message || !next.stopped() {
		t.Errorf("after another failure it is %+v", next)
	}
	next.observe(set, several("o", 1, up, created(-time.Minute)))
	if next.stopped() {
		t.Error("a machine that joined does not end it")
	}
}
