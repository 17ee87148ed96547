package machineset

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/machine/machinestate"
)

func toReboot(m *v1beta1.Machine) {
	unhealthy(m)
	setCondition(m, v1beta1.ConditionRemediationRequested, true, v1beta1.ReasonRebootRequested, time.Minute)
}

// rebooting is a machine whose provider reboots the instance for a health check.
func rebooting(state v1beta1.RebootState, step v1beta1.PowerStep) machineOption {
	return func(m *v1beta1.Machine) {
		toReboot(m)
		next, _ := machinestate.NextRemediationReboot(m)
		annotated(v1beta1.AnnotationReboot, next.String())(m)
		began := metav1.NewTime(epoch)
		m.Status.NodeRef = &v1beta1.NodeRef{Name: "node-" + m.Name}
		m.Status.Reboot = &v1beta1.RebootStatus{Request: next.String(), State: state, StartTime: &began}
		if step != "" {
			m.Status.Power, m.Status.Phase = &v1beta1.PowerStatus{Step: step, Since: began}, v1beta1.MachineStopped
			setCondition(m, v1beta1.ConditionReady, false, string(step), 0)
		}
	}
}

func then(options ...machineOption) machineOption {
	return func(m *v1beta1.Machine) {
		for _, o := range options {
			o(m)
		}
	}
}

// Rules: reboot-by-owner, reboot-budget.
func TestRebootsOfUnhealthyMachines(t *testing.T) {
	withdrawn := func(m *v1beta1.Machine) {
		meta.RemoveStatusCondition(&m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	}
	replaced := func(m *v1beta1.Machine) {
		setCondition(m, v1beta1.ConditionRemediationRequested, true, v1beta1.ReasonReplaceAfterReboot, time.Second)
	}
	again := func(m *v1beta1.Machine) {
		setCondition(m, v1beta1.ConditionRemediationRequested, true, v1beta1.ReasonRebootRequested, time.Second)
	}
	inProgress := then(rebooting(v1beta1.RebootRebooting, v1beta1.PowerStepStarting), withdrawn)
	for name, tc := range map[string]struct {
		machines []*v1beta1.Machine
		change   func(*State)
		want     string
	}{
		"a marked machine is rebooted": {[]*v1beta1.Machine{newMachine("a", toReboot)}, nil, "reboot a"},
		"only as many as maxInFlight": {several("m", 3, toReboot), func(s *State) { s.MaxInFlight = 2 },
			"reboot m0 m1"},
		"while as many reboots are in progress":     {several("m", 3, toReboot), func(s *State) { s.MaxInFlight, s.InFlight = 2, 2 }, "settled"},
		"a requested reboot is not requested again": {[]*v1beta1.Machine{newMachine("a", rebooting(v1beta1.RebootDraining, ""))}, nil, "settled"},
		"a machine that is being rebooted stays":    {[]*v1beta1.Machine{newMachine("a", inProgress)}, nil, "settled"},
		"a second attempt": {[]*v1beta1.Machine{newMachine("a", then(rebooting(v1beta1.RebootRebooting,
			v1beta1.PowerStepBooting), again))}, nil, "reboot a"},
		"a machine that reboots did not heal is replaced": {[]*v1beta1.Machine{newMachine("a",
			then(rebooting(v1beta1.RebootRebooting, v1beta1.PowerStepBooting), replaced))}, nil, "replace a"},
		"a machine that was not started again is replaced": {[]*v1beta1.Machine{newMachine("a", then(inProgress, replaced))}, nil, "replace a"},
		"a machine that a user has stopped stays": {[]*v1beta1.Machine{newMachine("a", then(inProgress, replaced,
			powerState(v1beta1.PowerStopped)))}, nil, "settled"},
		"an exempt machine stays": {[]*v1beta1.Machine{newMachine("a", then(toReboot,
			annotated(v1beta1.AnnotationSkipRemediation, "")))}, nil, "settled"},
		"a paused machine stays": {[]*v1beta1.Machine{newMachine("a", then(toReboot,
			annotated(v1beta1.AnnotationPaused, "")))}, nil, "settled"},
		"a denied machine stays": {[]*v1beta1.Machine{newMachine("a", toReboot)}, func(s *State) {
			s.Decide = func(all []disruption.Candidate) (may []disruption.Candidate, denied []disruption.Denial) {
				for _, c := range all {
					denied = append(denied, disruption.Denial{Candidate: c})
				}
				return nil, denied
			}
		}, "deny a"},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(aSet(int32(len(tc.machines))), tc.machines...)
			s.MaxInFlight = 1
			if tc.change != nil {
				tc.change(&s)
			}
			p := Decide(s)
			p.RequeueAfter = 0
			if got := p.String(); got != tc.want {
				t.Errorf("the plan is %q, want %q", got, tc.want)
			}
		})
	}
	for name, tc := range map[string]struct {
		machine machineOption
		want    bool
	}{
		"marked":                          {toReboot, false},
		"requested":                       {rebooting(v1beta1.RebootDraining, ""), true},
		"in progress":                     {inProgress, true},
		"in progress, and to be replaced": {then(inProgress, replaced), false},
		"ended":                           {then(rebooting(v1beta1.RebootSucceeded, ""), withdrawn, up), false},
	} {
		m := newMachine("a", tc.machine)
		if got := isRebootInFlight(m); got != tc.want {
			t.Errorf("%s: in flight: %t, want %t", name, got, tc.want)
		}
		if _, got := disruption.ReasonOf(m); got != tc.want {
			t.Errorf("%s: disrupted: %t, want %t", name, got, tc.want)
		}
	}
}
