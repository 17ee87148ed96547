package healthcheck

import (
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: remediation-retries-limited. A health check may see a machine that Failed only after its deletion has begun.
func TestAFailedMachineCountsWhileItIsTornDown(t *testing.T) {
	tornDown := func(s *Subject) {
		s.Machine.Status.Phase, s.Machine.Status.FailureReason = v1beta1.MachineDeleting, v1beta1.FailureJoinClusterTimeout
	}
	found, left := Succeed([]*v1beta1.Machine{made("c", 30, deleted(60), after(1, "a"), tornDown), made("d", 60)}, nil,
		minutes(61))
	if len(found) != 1 || found[0].Machine.Name != "d" || found[0].Vacancy.Row != 2 || len(left) > 0 {
		t.Errorf("found %v, left %v", found, left)
	}
}
