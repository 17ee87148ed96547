package healthcheck

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: max-unhealthy-stops-remediation.
func TestRemediationAllowedNamesTheRestriction(t *testing.T) {
	for name, test := range map[string]struct {
		why    ConditionReason
		status metav1.ConditionStatus
		reason string
	}{
		"no restriction": {status: metav1.ConditionTrue, reason: v1beta1.ReasonRemediationAllowed},
		"a restriction": {why: ConditionReason{v1beta1.ReasonTooManyUnhealthy, "2 of 3 are unhealthy"},
			status: metav1.ConditionFalse, reason: v1beta1.ReasonTooManyUnhealthy},
	} {
		p, c, status := &pass{now: start}, &v1beta1.MachineHealthCheck{}, &v1beta1.MachineHealthCheckStatus{}
		c.Generation = 3
		p.setCondition(c, status, test.why)
		got := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionRemediationAllowed)
		if got == nil || got.Status != test.status || got.Reason != test.reason || got.Message != test.why.Message ||
			got.ObservedGeneration != 3 || !got.LastTransitionTime.Time.Equal(start) {
			t.Errorf("%s: the condition is %+v", name, got)
		}
	}
}
