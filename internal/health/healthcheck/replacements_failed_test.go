package healthcheck

import (
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// A check may see a Failed machine only during its deletion.
//
// Rule: remediation-retries-limited.
func TestFailedMachineCountsWhileItIsBeingDeleted(t *testing.T) {
	failedAndDeleting := func(s *Subject) {
		s.Machine.Status.Phase, s.Machine.Status.FailureReason = v1beta1.MachineDeleting, v1beta1.FailureJoinClusterTimeout
	}
	found, left := MatchReplacements([]*v1beta1.Machine{created("c", 30, deleted(60), after(1, "a"), failedAndDeleting), created("d", 60)}, nil,
		minutes(61))
	if len(found) != 1 || found[0].Machine.Name != "d" || found[0].Predecessor.Retries != 2 || len(left) > 0 {
		t.Errorf("found %v, left %v", found, left)
	}
}
