package healthcheck

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func created(name string, at float64, change ...func(*Subject)) *v1beta1.Machine {
	setCreation := func(s *Subject) { s.Machine.CreationTimestamp = metav1.NewTime(minutes(at)) }
	return runningSubject(name, append([]func(*Subject){setCreation}, change...)...).Machine
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

func after(retries int, of string) func(*Subject) {
	return annotated(v1beta1.AnnotationRemediationRetry, fmt.Sprintf("%d/uid-%s", retries, of))
}

// Rule: remediation-retries-limited.
func TestMatchReplacements(t *testing.T) {
	for _, tc := range []struct {
		name     string
		machines []*v1beta1.Machine
		known    []Predecessor
		want     string // name=annotation …
		left     int
	}{
		{"nothing happens", []*v1beta1.Machine{created("a", 0), created("b", 0)}, nil, "", 0},
		{"the first is replaced", []*v1beta1.Machine{created("a", 0, markedAt(20), deleted(30)), created("b", 0), created("c", 30)},
			nil, "c=1/uid-a", 0},
		{"its replacement is replaced", []*v1beta1.Machine{created("c", 30, markedAt(50), deleted(60), after(1, "a")), created("b", 0),
			created("d", 60)}, nil, "d=2/uid-c", 0},
		{"a failed machine is replaced", []*v1beta1.Machine{created("a", 0, deleted(30), func(s *Subject) {
			s.Machine.Status.FailureReason = v1beta1.FailureJoinClusterTimeout
		}), created("c", 30)}, nil, "c=1/uid-a", 0},
		{"a healthy machine is deleted", []*v1beta1.Machine{created("a", 0, deleted(30)), created("c", 30)}, nil, "", 0},
		{"the replacement does not exist yet", []*v1beta1.Machine{created("a", 0, markedAt(20), deleted(30)), created("b", 0)}, nil, "", 1},
		{"the replacement is created when its predecessor is gone", []*v1beta1.Machine{created("b", 0), created("c", 30)},
			[]Predecessor{{"uid-a", 4, minutes(30)}}, "c=4/uid-a", 0},
		{"much later", []*v1beta1.Machine{created("b", 0), created("c", 59)}, []Predecessor{{"uid-a", 4, minutes(30)}}, "", 0},
		{"the replacement is annotated already", []*v1beta1.Machine{created("a", 0, markedAt(20), deleted(30)), created("c", 30, after(1, "a")),
			created("d", 31)}, nil, "", 0},
		{"two replacements, in order", []*v1beta1.Machine{created("a", 0, markedAt(20), deleted(32)),
			created("b", 0, markedAt(20), deleted(31), after(3, "x")), created("d", 33), created("c", 31)}, nil,
			"c=4/uid-b d=1/uid-a", 0},
		{"the count starts again after a machine that worked for long",
			[]*v1beta1.Machine{created("a", -120, markedAt(20), deleted(30), after(3, "x")), created("c", 30)}, nil, "c=1/uid-a", 0},
		{"the count continues after a machine that never worked",
			[]*v1beta1.Machine{created("a", -120, markedAt(20), deleted(30), after(3, "x"),
				condition(v1beta1.ConditionReady, metav1.ConditionFalse, "Any", -119)), created("c", 30)}, nil, "c=4/uid-a", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found, left := MatchReplacements(tc.machines, tc.known, minutes(40+20*float64(strings.Count(tc.name, "much later"))))
			var got []string
			for _, s := range found {
				got = append(got, s.Machine.Name+"="+s.Predecessor.annotation())
			}
			slices.Sort(got)
			if strings.Join(got, " ") != tc.want || len(left) != tc.left {
				t.Errorf("found %v, left %v; want %q, %d", got, left, tc.want, tc.left)
			}
		})
	}
}

func TestInvalidRetryAnnotationsAreIgnored(t *testing.T) {
	for _, value := range []string{"", "3", "x/uid", "0/uid", "-1/uid", "9999999999999999999/uid"} {
		if row, of, ok := retriesOf(created("a", 0, annotated(v1beta1.AnnotationRemediationRetry, value))); ok {
			t.Errorf("%q is read as %d, %s", value, row, of)
		}
	}
}
