package machinestate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func condition(kind string, status metav1.ConditionStatus, reason string) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason})
	}
}

func annotation(key string) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) { m.Annotations = map[string]string{key: ""} }
}

func typeVersion(version string) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) { m.Labels = map[string]string{v1beta1.LabelTypeVersion: version} }
}

// A phase that another client has written comes without a failure reason.
func TestFailedPhaseWithoutAReasonIsNotAFailure(t *testing.T) {
	m := &v1beta1.Machine{}
	m.Status.Phase = v1beta1.MachineFailed
	if HasFailed(m) {
		t.Error("a machine without a failure reason counts as failed")
	}
	if failed(m); !HasFailed(m) {
		t.Error("a failed machine does not count as failed")
	}
}

func failed(m *v1beta1.Machine) {
	m.Status.Phase, m.Status.FailureReason = v1beta1.MachineFailed, v1beta1.FailureCreateError
}

// MachineSets, MachineDeployments, health checks and preservation must not define their own predicates.
//
// Rules: remediation-by-strategy, remediation-retries-limited, interrupted-replaced-at-once, preserve-on-request.
func TestReplacementPredicates(t *testing.T) {
	requested := func(status metav1.ConditionStatus, reason string) func(*v1beta1.Machine) {
		return condition(v1beta1.ConditionRemediationRequested, status, reason)
	}
	interrupted := condition(v1beta1.ConditionInterruptionNotice, metav1.ConditionTrue, v1beta1.ReasonPreemptionNotice)
	for name, test := range map[string]struct {
		changes                                 []func(*v1beta1.Machine)
		toBeReplaced, failedOrUnhealthy, exempt bool
	}{
		"healthy":                                {},
		"failed":                                 {[]func(*v1beta1.Machine){failed}, true, true, false},
		"unhealthy":                              {[]func(*v1beta1.Machine){requested(metav1.ConditionTrue, v1beta1.ReasonMachineHealthCheck)}, true, true, false},
		"no longer unhealthy":                    {[]func(*v1beta1.Machine){requested(metav1.ConditionFalse, v1beta1.ReasonMachineHealthCheck)}, false, false, false},
		"left to an external remediator":         {[]func(*v1beta1.Machine){requested(metav1.ConditionTrue, v1beta1.ReasonExternalRemediation)}, false, false, false},
		"failed, left to an external remediator": {[]func(*v1beta1.Machine){failed, requested(metav1.ConditionTrue, v1beta1.ReasonExternalRemediation)}, true, true, false},
		"interrupted":                            {[]func(*v1beta1.Machine){interrupted}, true, false, false},
		"interrupted, then failed":               {[]func(*v1beta1.Machine){interrupted, failed}, true, true, false},
		"exempt by annotation":                   {[]func(*v1beta1.Machine){failed, annotation(v1beta1.AnnotationSkipRemediation)}, true, true, true},
		"retries exhausted":                      {[]func(*v1beta1.Machine){failed, requested(metav1.ConditionFalse, v1beta1.ReasonRetriesExhausted)}, true, true, true},
		"unhealthy, retries exhausted":           {[]func(*v1beta1.Machine){requested(metav1.ConditionTrue, v1beta1.ReasonRetriesExhausted)}, true, true, false},
	} {
		m := &v1beta1.Machine{}
		for _, change := range test.changes {
			change(m)
		}
		if got := ToBeReplaced(m); got != test.toBeReplaced {
			t.Errorf("%s: ToBeReplaced is %t", name, got)
		}
		if got := FailedOrUnhealthy(m); got != test.failedOrUnhealthy {
			t.Errorf("%s: FailedOrUnhealthy is %t", name, got)
		}
		if got := ReplacementExempt(m); got != test.exempt {
			t.Errorf("%s: ReplacementExempt is %t", name, got)
		}
	}
}

func TestUnchangeable(t *testing.T) {
	for name, test := range map[string]struct {
		change      func(*v1beta1.Machine)
		paused, all bool
	}{
		"neither":                {func(*v1beta1.Machine) {}, false, false},
		"paused":                 {annotation(v1beta1.AnnotationPaused), true, true},
		"paused for Cluster API": {annotation(v1beta1.AnnotationClusterAPIPaused), true, true},
		"this type version":      {typeVersion(v1beta1.TypeVersion), false, false},
		"another type version":   {typeVersion("v9"), false, true},
		"an empty type version":  {typeVersion(""), false, true},
	} {
		m := &v1beta1.Machine{}
		test.change(m)
		if IsPaused(m) != test.paused || IsUnchangeable(m) != test.all {
			t.Errorf("%s: Paused is %t, Unchangeable is %t", name, IsPaused(m), IsUnchangeable(m))
		}
	}
}
