package healthcheck

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// made is a machine created at a minute.
func made(name string, at float64, change ...func(*Subject)) *v1beta1.Machine {
	made := func(s *Subject) { s.Machine.CreationTimestamp = metav1.NewTime(minutes(at)) }
	return running(name, append([]func(*Subject){made}, change...)...).Machine
}

func deleted(at float64) func(*Subject) {
	return func(s *Subject) { s.Machine.DeletionTimestamp = &metav1.Time{Time: minutes(at)} }
}

func markedAt(at float64) func(*Subject) {
	return func(s *Subject) {
		condition(v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonNodeUnresponsive, at)(s)
		condition(v1beta1.ConditionRemediationRequested, metav1.ConditionTrue, v1beta1.ReasonMachineHealthCheck, at)(s)
	}
}

func after(row int, of string) func(*Subject) {
	return annotated(v1beta1.AnnotationRemediationRetry, fmt.Sprintf("%d/uid-%s", row, of))
}

// Rule: remediation-retries-limited.
func TestAReplacementKnowsHowManyWereReplacedBeforeIt(t *testing.T) {
	for _, tc := range []struct {
		name     string
		machines []*v1beta1.Machine
		known    []Vacancy
		want     string // name=annotation …
		left     int
	}{
		{"nothing happens", []*v1beta1.Machine{made("a", 0), made("b", 0)}, nil, "", 0},
		{"the first is replaced", []*v1beta1.Machine{made("a", 0, markedAt(20), deleted(30)), made("b", 0), made("c", 30)},
			nil, "c=1/uid-a", 0},
		{"its replacement is", []*v1beta1.Machine{made("c", 30, markedAt(50), deleted(60), after(1, "a")), made("b", 0),
			made("d", 60)}, nil, "d=2/uid-c", 0},
		{"one that failed", []*v1beta1.Machine{made("a", 0, deleted(30), func(s *Subject) {
			s.Machine.Status.FailureReason = v1beta1.FailureJoinClusterTimeout
		}), made("c", 30)}, nil, "c=1/uid-a", 0},
		{"one that somebody deleted", []*v1beta1.Machine{made("a", 0, deleted(30)), made("c", 30)}, nil, "", 0},
		{"it is not there yet", []*v1beta1.Machine{made("a", 0, markedAt(20), deleted(30)), made("b", 0)}, nil, "", 1},
		{"and comes when the first is gone", []*v1beta1.Machine{made("b", 0), made("c", 30)},
			[]Vacancy{{"uid-a", 4, minutes(30)}}, "c=4/uid-a", 0},
		{"much later", []*v1beta1.Machine{made("b", 0), made("c", 59)}, []Vacancy{{"uid-a", 4, minutes(30)}}, "", 0},
		{"it is known already", []*v1beta1.Machine{made("a", 0, markedAt(20), deleted(30)), made("c", 30, after(1, "a")),
			made("d", 31)}, nil, "", 0},
		{"two, in order", []*v1beta1.Machine{made("a", 0, markedAt(20), deleted(32)),
			made("b", 0, markedAt(20), deleted(31), after(3, "x")), made("d", 33), made("c", 31)}, nil,
			"c=4/uid-b d=1/uid-a", 0},
		{"one that worked for long ends the row",
			[]*v1beta1.Machine{made("a", -120, markedAt(20), deleted(30), after(3, "x")), made("c", 30)}, nil, "c=1/uid-a", 0},
		{"one that never worked does not",
			[]*v1beta1.Machine{made("a", -120, markedAt(20), deleted(30), after(3, "x"),
				condition(v1beta1.ConditionReady, metav1.ConditionFalse, "Any", -119)), made("c", 30)}, nil, "c=4/uid-a", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found, left := Succeed(tc.machines, tc.known, minutes(40+20*float64(strings.Count(tc.name, "much later"))))
			var got []string
			for _, s := range found {
				got = append(got, s.Machine.Name+"="+s.Vacancy.annotation())
			}
			slices.Sort(got)
			if strings.Join(got, " ") != tc.want || len(left) != tc.left {
				t.Errorf("found %v, left %v; want %q, %d", got, left, tc.want, tc.left)
			}
		})
	}
}

func TestOtherValuesOfTheAnnotationMeanNothing(t *testing.T) {
	for _, value := range []string{"", "3", "x/uid", "0/uid", "-1/uid", "9999999999999999999/uid"} {
		if row, of, ok := rowOf(made("a", 0, annotated(v1beta1.AnnotationRemediationRetry, value))); ok {
			t.Errorf("%q is read as %d, %s", value, row, of)
		}
	}
}
