package machine

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

var rebootTime = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// rebootCase returns a Running machine with the annotation "new" and the last reboot "old".
func rebootCase(changes ...func(*v1beta1.Machine)) *v1beta1.Machine {
	m := &v1beta1.Machine{}
	m.Annotations = map[string]string{v1beta1.AnnotationReboot: "new"}
	m.Status.Phase = v1beta1.MachineRunning
	m.Status.Reboot = &v1beta1.RebootStatus{Request: "old", State: v1beta1.RebootSucceeded}
	for _, change := range changes {
		change(m)
	}
	return m
}

func inState(request string, state v1beta1.RebootState, step v1beta1.PowerStep) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		m.Status.Reboot = &v1beta1.RebootStatus{Request: request, State: state}
		if step != "" {
			m.Status.Power = &v1beta1.PowerStatus{Step: step, Since: metav1.NewTime(rebootTime.Add(-time.Minute))}
		}
	}
}

func markedAt(at time.Time, reason string) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		m.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionRemediationRequested, Status: metav1.ConditionTrue,
			Reason: reason, LastTransitionTime: metav1.NewTime(at)}}
	}
}

func preserved(m *v1beta1.Machine) {
	m.Annotations[v1beta1.AnnotationPreservedUntil] = rebootTime.Add(time.Hour).Format(time.RFC3339)
}

func requested(value string) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) { m.Annotations[v1beta1.AnnotationReboot] = value }
}

// Rules: reboot-once, reboot-waits, reboot-cancelled, reboot-again-while-booting, reboot-request-of-manager.
func TestPlanReboot(t *testing.T) {
	t.Parallel()
	stopped := func(m *v1beta1.Machine) { m.Spec.PowerState = v1beta1.PowerStopped }
	failed := func(m *v1beta1.Machine) { m.Status.FailureReason = v1beta1.FailureInstanceVanished }
	withoutRequest := func(m *v1beta1.Machine) { m.Annotations = nil }
	of := machinestate.RemediationReboot{Attempt: 1, MarkTime: rebootTime.Unix()}.String()
	running := rebootLimits{hasRun: true}
	for name, tc := range map[string]struct {
		m      *v1beta1.Machine
		limits rebootLimits
		want   rebootAction
		reason string
	}{
		"a new value":            {rebootCase(), running, rebootBegins, ""},
		"the first value":        {rebootCase(func(m *v1beta1.Machine) { m.Status.Reboot = nil }), running, rebootBegins, ""},
		"no value":               {rebootCase(withoutRequest), running, rebootNothing, ""},
		"the same value":         {rebootCase(inState("new", v1beta1.RebootSucceeded, "")), running, rebootNothing, ""},
		"the same value, failed": {rebootCase(inState("new", v1beta1.RebootFailed, "")), running, rebootNothing, ""},
		"the same value, cancelled": {rebootCase(inState("new", v1beta1.RebootCancelled, "")), running, rebootNothing,
			""},
		"the same value, not supported": {rebootCase(inState("new", v1beta1.RebootNotSupported, "")), running, rebootNothing, ""},
		"no power":                      {rebootCase(), rebootLimits{hasRun: true, refusal: "no"}, rebootEnds, v1beta1.ReasonPowerNotSupported},
		"preserved":                     {rebootCase(preserved), running, rebootWaits, v1beta1.ReasonPreserved},
		"stopped":                       {rebootCase(stopped), running, rebootWaits, v1beta1.ReasonStopped},
		"updating":                      {rebootCase(), rebootLimits{hasRun: true, updating: true}, rebootWaits, v1beta1.ReasonUpdating},
		"never Running":                 {rebootCase(), rebootLimits{}, rebootWaits, v1beta1.ReasonWaitingForNode},
		"being started": {rebootCase(inState("old", v1beta1.RebootCancelled, v1beta1.PowerStepBooting)), running,
			rebootWaits, v1beta1.ReasonStarting},
		"draining":                  {rebootCase(inState("new", v1beta1.RebootDraining, "")), running, rebootBegins, ""},
		"draining for another":      {rebootCase(inState("old", v1beta1.RebootDraining, "")), running, rebootBegins, ""},
		"draining without request":  {rebootCase(inState("old", v1beta1.RebootDraining, ""), withoutRequest), running, rebootNothing, ""},
		"draining, then preserved":  {rebootCase(inState("new", v1beta1.RebootDraining, ""), preserved), running, rebootWaits, v1beta1.ReasonPreserved},
		"shutting down":             {rebootCase(inState("new", v1beta1.RebootRebooting, v1beta1.PowerStepShuttingDown)), running, rebootContinues, ""},
		"shutting down for another": {rebootCase(inState("old", v1beta1.RebootRebooting, v1beta1.PowerStepShuttingDown)), running, rebootContinues, ""},
		"shutting down without request": {rebootCase(inState("old", v1beta1.RebootRebooting, v1beta1.PowerStepStarting),
			withoutRequest), running, rebootContinues, ""},
		"shutting down, preserved": {rebootCase(inState("new", v1beta1.RebootRebooting, v1beta1.PowerStepShuttingDown),
			preserved), running, rebootContinues, ""},
		"shutting down, stopped": {rebootCase(inState("new", v1beta1.RebootRebooting, v1beta1.PowerStepShuttingDown),
			stopped), running, rebootEnds, v1beta1.ReasonRebootCancelled},
		"shutting down, failed": {rebootCase(inState("new", v1beta1.RebootRebooting, v1beta1.PowerStepStarting), failed),
			running, rebootEnds, v1beta1.ReasonRebootCancelled},
		"power was removed":   {rebootCase(inState("new", v1beta1.RebootRebooting, "")), running, rebootEnds, v1beta1.ReasonRebootCancelled},
		"booting":             {rebootCase(inState("new", v1beta1.RebootRebooting, v1beta1.PowerStepBooting)), running, rebootContinues, ""},
		"booting for another": {rebootCase(inState("old", v1beta1.RebootRebooting, v1beta1.PowerStepBooting)), running, rebootBegins, ""},
		"booting for too long": {rebootCase(inState("new", v1beta1.RebootRebooting, v1beta1.PowerStepBooting), func(m *v1beta1.Machine) {
			m.Spec.Timeouts.Creation = &metav1.Duration{Duration: time.Second}
		}), running, rebootEnds, v1beta1.ReasonRebootFailed},
		"by the manager":            {rebootCase(requested(of), markedAt(rebootTime, v1beta1.ReasonRebootRequested)), running, rebootBegins, ""},
		"by the manager, withdrawn": {rebootCase(requested(of)), running, rebootNothing, ""},
		"by the manager, for an earlier mark": {rebootCase(requested(of), markedAt(rebootTime.Add(time.Minute),
			v1beta1.ReasonRebootRequested)), running, rebootNothing, ""},
		"by the manager, then to be replaced": {rebootCase(requested(of), markedAt(rebootTime, v1beta1.ReasonReplaceAfterReboot)),
			running, rebootNothing, ""},
		"in the manager's name": {rebootCase(requested("remediation-x")), running, rebootNothing, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := planReboot(tc.m, tc.limits, rebootTime)
			if got.action != tc.want || got.reason != tc.reason {
				t.Errorf("plan %+v, want action %d, reason %q", got, tc.want, tc.reason)
			}
		})
	}
}

// FuzzPlanReboot checks for arbitrary states that no reboot begins for a value that was carried out, and that none
// begins during another change of the machine.
//
// Rules: reboot-once, reboot-waits.
func FuzzPlanReboot(f *testing.F) {
	f.Add(uint16(0), uint8(0), uint8(0))
	f.Add(uint16(0b11), uint8(1), uint8(3))
	f.Fuzz(func(t *testing.T, flags uint16, state, step uint8) {
		on := func(bit int) bool { return flags&(1<<bit) != 0 }
		states := []v1beta1.RebootState{"", v1beta1.RebootDraining, v1beta1.RebootRebooting, v1beta1.RebootSucceeded,
			v1beta1.RebootFailed, v1beta1.RebootCancelled, v1beta1.RebootNotSupported}
		steps := []v1beta1.PowerStep{"", v1beta1.PowerStepShuttingDown, v1beta1.PowerStepStopped, v1beta1.PowerStepStarting,
			v1beta1.PowerStepBooting}
		last := "old"
		if on(0) {
			last = "new"
		}
		m := rebootCase(inState(last, states[int(state)%len(states)], steps[int(step)%len(steps)]))
		if m.Status.Reboot.State == "" {
			m.Status.Reboot = nil
		}
		if on(1) {
			preserved(m)
		}
		if on(2) {
			m.Spec.PowerState = v1beta1.PowerStopped
		}
		if on(3) {
			delete(m.Annotations, v1beta1.AnnotationReboot)
		}
		limits := rebootLimits{hasRun: !on(4), updating: on(5)}
		if on(6) {
			limits.refusal = "no"
		}
		plan := planReboot(m, limits, rebootTime)
		reboot := m.Status.Reboot
		switch {
		case plan.action != rebootBegins:
			if plan.action == rebootContinues && (m.Status.Power == nil || reboot == nil ||
				reboot.State != v1beta1.RebootRebooting) {
				t.Errorf("a reboot continues that has not begun: %+v", m.Status)
			}
		case on(1) || on(2) || on(3) || on(4) || on(5) || on(6):
			t.Errorf("a reboot begins: %+v, %+v", m, limits)
		case reboot != nil && reboot.State != v1beta1.RebootDraining && reboot.Request == plan.request:
			t.Errorf("a second reboot for %q begins: %+v", plan.request, reboot)
		case m.Status.Power != nil && (reboot == nil || reboot.State != v1beta1.RebootRebooting ||
			m.Status.Power.Step != v1beta1.PowerStepBooting):
			t.Errorf("a reboot begins in step %s of another change", m.Status.Power.Step)
		}
	})
}
