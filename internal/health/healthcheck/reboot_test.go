package healthcheck

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

func withReboots(attempts int32) Policy {
	return policy(func(p *Policy) {
		p.Type, p.Reboots = v1beta1.RemediationReboot, &Reboots{MaxAttempts: attempts, Timeout: 10 * time.Minute}
	})
}

// rebootAt adds the annotation of an attempt whose mark was set at the given minute, and the state of the reboot. An
// empty state means that the provider has not processed the annotation yet.
func rebootAt(attempt int32, markTime float64, state v1beta1.RebootState, began float64) func(*Subject) {
	return func(s *Subject) {
		value := machinestate.RemediationReboot{Attempt: attempt, MarkTime: minutes(markTime).Unix()}.String()
		annotated(v1beta1.AnnotationReboot, value)(s)
		if state == "" {
			return
		}
		at := metav1.NewTime(minutes(began))
		s.Machine.Status.Reboot = &v1beta1.RebootStatus{Request: value, State: state, StartTime: &at}
		if state == v1beta1.RebootSucceeded {
			done := metav1.NewTime(at.Add(2 * time.Minute))
			s.Machine.Status.Reboot.CompletionTime = &done
		}
	}
}

func power(step v1beta1.PowerStep, since float64) func(*Subject) {
	return func(s *Subject) {
		s.Machine.Status.Power = &v1beta1.PowerStatus{Step: step, Since: metav1.NewTime(minutes(since))}
	}
}

func markedFor(reason string, at float64) func(*Subject) {
	return condition(v1beta1.ConditionRemediationRequested, metav1.ConditionTrue, reason, at)
}

// Rules: reboot-first, reboot-attempts, reboot-timeout-by-check, reboot-then-replace.
func TestRebootFirst(t *testing.T) {
	none := func(*Subject) {}
	for name, tc := range map[string]struct {
		now      float64
		attempts int32
		changes  []func(*Subject)
		want     string // the reason of the mark
		recheck  time.Duration
		recover  bool
	}{
		"a silent machine":                    {40, 1, []func(*Subject){silent(20)}, v1beta1.ReasonRebootRequested, 0, false},
		"before the timeout of the condition": {25, 1, []func(*Subject){silent(20)}, "", 5 * time.Minute, false},
		"a failed machine needs no mark":      {40, 1, []func(*Subject){phase(v1beta1.MachineFailed)}, "", 0, false},
		"a machine without a Node": {40, 1, []func(*Subject){func(s *Subject) {
			s.Node = nil
			condition(v1beta1.ConditionRegistered, metav1.ConditionFalse, v1beta1.ReasonNodeGone, 20)(s)
		}}, v1beta1.ReasonMachineHealthCheck, 0, false},
		"the reboot was requested": {40, 1, []func(*Subject){silent(20), markedFor(v1beta1.ReasonRebootRequested, 35),
			rebootAt(1, 35, "", 0)}, v1beta1.ReasonRebootRequested, 0, false},
		"the node is being drained": {40, 1, []func(*Subject){silent(20), markedFor(v1beta1.ReasonRebootRequested, 35),
			rebootAt(1, 35, v1beta1.RebootDraining, 36), func(s *Subject) { s.Machine.Status.Reboot.StartTime = nil }},
			v1beta1.ReasonRebootRequested, 0, false},
		"the instance is being stopped": {40, 1, []func(*Subject){silent(20), rebootAt(1, 35, v1beta1.RebootRebooting, 36),
			power(v1beta1.PowerStepShuttingDown, 36)}, "", 6 * time.Minute, false},
		"the instance is booting": {40, 1, []func(*Subject){silent(20), rebootAt(1, 35, v1beta1.RebootRebooting, 36),
			power(v1beta1.PowerStepBooting, 37)}, "", 6 * time.Minute, false},
		"the node does not become Ready": {60, 1, []func(*Subject){silent(20), rebootAt(1, 35, v1beta1.RebootRebooting, 36),
			power(v1beta1.PowerStepBooting, 37)}, v1beta1.ReasonReplaceAfterReboot, 0, false},
		"the node does not become Ready, another attempt": {60, 2, []func(*Subject){silent(20),
			rebootAt(1, 35, v1beta1.RebootRebooting, 36), power(v1beta1.PowerStepBooting, 37)},
			v1beta1.ReasonRebootRequested, 0, false},
		"another attempt, with the old mark": {60, 2, []func(*Subject){silent(20), markedFor(v1beta1.ReasonRebootRequested, 35),
			rebootAt(1, 35, v1beta1.RebootRebooting, 36), power(v1beta1.PowerStepBooting, 37)}, "", time.Second, false},
		"the last attempt": {80, 2, []func(*Subject){silent(20), rebootAt(2, 60, v1beta1.RebootRebooting, 61),
			power(v1beta1.PowerStepBooting, 62)}, v1beta1.ReasonReplaceAfterReboot, 0, false},
		"no capacity for the start": {60, 3, []func(*Subject){silent(20), rebootAt(1, 35, v1beta1.RebootRebooting, 36),
			power(v1beta1.PowerStepStarting, 37)}, v1beta1.ReasonReplaceAfterReboot, 0, false},
		"the user stops the machine": {60, 1, []func(*Subject){silent(20), rebootAt(1, 35, v1beta1.RebootRebooting, 36),
			power(v1beta1.PowerStepStopped, 37), func(s *Subject) { s.Machine.Spec.PowerState = v1beta1.PowerStopped }},
			"", 0, false},
		"the provider cannot reboot": {40, 3, []func(*Subject){silent(20), markedFor(v1beta1.ReasonRebootRequested, 35),
			rebootAt(1, 35, v1beta1.RebootNotSupported, 36)}, v1beta1.ReasonReplaceAfterReboot, 0, false},
		"a problem that the reboot did not solve": {50, 1, []func(*Subject){node("KernelDeadlock", "True", 20),
			rebootAt(1, 35, v1beta1.RebootSucceeded, 36)}, v1beta1.ReasonReplaceAfterReboot, 0, false},
		"a problem shortly after the reboot": {40, 1, []func(*Subject){node("KernelDeadlock", "True", 20),
			rebootAt(1, 35, v1beta1.RebootSucceeded, 36)}, "", 6 * time.Minute, false},
		"healthy for a short time":  {42, 1, []func(*Subject){rebootAt(1, 35, v1beta1.RebootSucceeded, 36)}, "", 6 * time.Minute, false},
		"healthy for a long time":   {70, 1, []func(*Subject){rebootAt(1, 35, v1beta1.RebootSucceeded, 36)}, "", 0, true},
		"a reboot by a user":        {70, 1, []func(*Subject){annotated(v1beta1.AnnotationReboot, "mine")}, "", 0, false},
		"a healthy machine":         {70, 1, []func(*Subject){none}, "", 0, false},
		"silent again, attempt one": {90, 2, []func(*Subject){silent(70)}, v1beta1.ReasonRebootRequested, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			subjects := append(fleet(4, 0), runningSubject("x", tc.changes...))
			j := Decide(withReboots(tc.attempts), subjects, Situation{Now: minutes(tc.now)})
			got := ""
			for _, w := range j.DesiredConditions {
				if w.Subject.Machine.Name != "x" || !w.RequestsReplacement {
					t.Fatalf("condition %+v", w)
				}
				got = w.Reason.Reason
			}
			if got != tc.want {
				t.Errorf("the mark has the reason %q, want %q", got, tc.want)
			}
			if j.RecheckAfter != tc.recheck {
				t.Errorf("the next check is after %s, want %s", j.RecheckAfter, tc.recheck)
			}
			if (len(j.Recovered) == 1) != tc.recover {
				t.Errorf("recovered: %d machines", len(j.Recovered))
			}
		})
	}
}
