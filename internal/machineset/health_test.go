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

// A machine that became Ready after a check had marked it is left alone for a while: the mark may be on its way back.
//
// H-6.
func TestARecoveredMachineIsNotReplacedAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name              string
		markedFor, upFor  time.Duration
		reason            string
		failed, candidate bool
	}{
		{"well since before the mark", time.Minute, time.Hour, v1beta1.ReasonMachineHealthCheck, false, true},
		{"well since the mark, by a clock that is behind", 10 * time.Second, time.Hour, v1beta1.ReasonMachineHealthCheck, false, false},
		{"well since the mark", time.Minute, 10 * time.Second, v1beta1.ReasonMachineHealthCheck, false, false},
		{"well for longer than a withdrawal takes", time.Hour, withdrawal, v1beta1.ReasonMachineHealthCheck, false, true},
		{"well since the mark, which is a person's", time.Minute, 10 * time.Second, v1beta1.ReasonRemediateAnnotation, false, true},
		{"failed since the mark", time.Minute, 10 * time.Second, v1beta1.ReasonMachineHealthCheck, true, true},
	} {
		m := newMachine("a", func(m *v1beta1.Machine) {
			up(m)
			setCondition(m, v1beta1.ConditionReady, true, v1beta1.ReasonMachineReady, tc.upFor)
			setCondition(m, v1beta1.ConditionRemediationRequested, true, tc.reason, tc.markedFor)
			if tc.failed {
				m.Status.Phase = v1beta1.MachineFailed
			}
		})
		candidates, wait := remediationCandidates([]*v1beta1.Machine{m}, epoch)
		if got := len(candidates) == 1; got != tc.candidate || got != (wait == 0) {
			t.Errorf("%s: a candidate: %t, want %t; looked at again after %s", tc.name, got, tc.candidate, wait)
		}
	}
}
