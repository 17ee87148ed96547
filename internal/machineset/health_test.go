package machineset

import (
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// What health checks say of a machine, and what its set makes of it.
//
// H-6, H-11.
func TestASetReplacesWhatIsItsToReplace(t *testing.T) {
	requested := func(status bool, reason string) machineOption {
		return func(m *v1beta1.Machine) {
			up(m)
			setCondition(m, v1beta1.ConditionRemediationRequested, status, reason, time.Minute)
		}
	}
	both := func(a, b machineOption) machineOption {
		return func(m *v1beta1.Machine) { b(m); a(m) }
	}
	held := func(m *v1beta1.Machine) {
		setCondition(m, v1beta1.ConditionRemediationRequested, false, v1beta1.ReasonRetriesExhausted, time.Minute)
	}
	for _, tc := range []struct {
		name    string
		machine machineOption
		want    bool
	}{
		{"marked by a check", requested(true, v1beta1.ReasonMachineHealthCheck), true},
		{"marked by a person", requested(true, v1beta1.ReasonRemediateAnnotation), true},
		{"marked for an outside remediator", requested(true, v1beta1.ReasonExternalRemediation), false},
		{"not marked", requested(false, v1beta1.ReasonMachineHealthCheck), false},
		{"failed", broken, true},
		{"failed, and enough others in a row were replaced", both(held, broken), false},
		{"failed, and an outside remediator is asked as well", both(func(m *v1beta1.Machine) {
			setCondition(m, v1beta1.ConditionRemediationRequested, true, v1beta1.ReasonExternalRemediation, time.Minute)
		}, broken), true},
	} {
		if got := remediable(newMachine("a", tc.machine)); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}
