package machineset

import (
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// Rules: remediation-by-strategy, remediation-retries-limited.
func TestRemediable(t *testing.T) {
	requested := func(status bool, reason string) machineOption {
		return func(m *v1beta1.Machine) {
			up(m)
			setCondition(m, v1beta1.ConditionRemediationRequested, status, reason, time.Minute)
		}
	}
	both := func(a, b machineOption) machineOption {
		return func(m *v1beta1.Machine) { b(m); a(m) }
	}
	exhausted := func(m *v1beta1.Machine) {
		setCondition(m, v1beta1.ConditionRemediationRequested, false, v1beta1.ReasonRetriesExhausted, time.Minute)
	}
	for _, tc := range []struct {
		name    string
		machine machineOption
		want    bool
	}{
		{"marked by a check", requested(true, v1beta1.ReasonMachineHealthCheck), true},
		{"marked by an annotation", requested(true, v1beta1.ReasonRemediateAnnotation), true},
		{"marked for an external remediator", requested(true, v1beta1.ReasonExternalRemediation), false},
		{"marked for a reboot", toReboot, true},
		{"not marked", requested(false, v1beta1.ReasonMachineHealthCheck), false},
		{"failed", broken, true},
		{"failed, with exhausted retries", both(exhausted, broken), false},
		{"failed, and also marked for an external remediator", both(func(m *v1beta1.Machine) {
			setCondition(m, v1beta1.ConditionRemediationRequested, true, v1beta1.ReasonExternalRemediation, time.Minute)
		}, broken), true},
	} {
		if got := remediable(newMachine("a", tc.machine)); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}

// The health check may be about to withdraw its request for a machine that is Ready again. The grace period starts when
// this process sees both conditions, because their times come from other clocks.
//
// Rules: remediation-by-strategy, recovery-minute-by-own-clock.
func TestRecoveredMachineIsNotReplacedAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name                      string
		markedFor, upFor, seenFor time.Duration
		reason                    string
		failed, candidate         bool
	}{
		{"seen just now", time.Minute, time.Hour, 0, v1beta1.ReasonMachineHealthCheck, false, false},
		{"seen for not long enough, by clocks that are behind", 10 * time.Minute, 10 * time.Minute, recoveryGrace - 1,
			v1beta1.ReasonMachineHealthCheck, false, false},
		{"seen for long enough", time.Minute, 10 * time.Second, recoveryGrace, v1beta1.ReasonMachineHealthCheck, false, true},
		{"seen for long enough, by clocks that are ahead", -10 * time.Minute, -10 * time.Minute, recoveryGrace,
			v1beta1.ReasonMachineHealthCheck, false, true},
		{"so old that clock differences do not matter",
			recoveryGrace + clockDifference, time.Hour, 0, v1beta1.ReasonMachineHealthCheck,
			false, true},
		{"Ready since it was marked by an annotation", time.Minute, 10 * time.Second, 0, v1beta1.ReasonRemediateAnnotation,
			false, true},
		{"failed since it was marked", time.Minute, 10 * time.Second, 0, v1beta1.ReasonMachineHealthCheck, true, true},
	} {
		m := newMachine("a", func(m *v1beta1.Machine) {
			up(m)
			setCondition(m, v1beta1.ConditionReady, true, v1beta1.ReasonMachineReady, tc.upFor)
			if tc.failed {
				broken(m)
			}
			setCondition(m, v1beta1.ConditionRemediationRequested, true, tc.reason, tc.markedFor)
		})
		machines := []*v1beta1.Machine{m}
		seen := recoveries(nil).refresh(machines, epoch.Add(-tc.seenFor)).refresh(machines, epoch)
		candidates, wait := remediationCandidates(machines, seen, epoch)
		if got := len(candidates) == 1; got != tc.candidate || got != (wait == 0) {
			t.Errorf("%s: a candidate: %t, want %t; wait %s", tc.name, got, tc.candidate, wait)
		}
	}
}

func interrupted(m *v1beta1.Machine) {
	up(m)
	setCondition(m, v1beta1.ConditionInterruptionNotice, true, v1beta1.ReasonPreemptionNotice, time.Second)
	setCondition(m, v1beta1.ConditionReady, false, v1beta1.ReasonPreemptionNotice, time.Second)
}

// Neither budget, backoff nor recoveryGrace delays the replacement.
//
// Rule: interrupted-replaced-at-once.
func TestInterruptedMachinesAreReplacedAtOnce(t *testing.T) {
	marked := func(m *v1beta1.Machine) {
		interrupted(m)
		setCondition(m, v1beta1.ConditionReady, true, v1beta1.ReasonMachineReady, time.Second)
		setCondition(m, v1beta1.ConditionRemediationRequested, true, v1beta1.ReasonMachineHealthCheck, time.Second)
	}
	external := func(m *v1beta1.Machine) {
		interrupted(m)
		setCondition(m, v1beta1.ConditionRemediationRequested, true, v1beta1.ReasonExternalRemediation, time.Second)
	}
	interruptedAnd := func(key string) machineOption {
		return func(m *v1beta1.Machine) { interrupted(m); m.Annotations = map[string]string{key: ""} }
	}
	withdrawn := func(m *v1beta1.Machine) {
		up(m)
		setCondition(m, v1beta1.ConditionInterruptionNotice, false, v1beta1.ReasonInterruptionWithdrawn, time.Second)
	}
	for name, tc := range map[string]struct {
		state State
		want  string
	}{
		"several machines, with no budget left": {stateOf(aSet(3), newMachine("a", interrupted), newMachine("b", interrupted),
			newMachine("c", up)), "a b"},
		"together with a failed machine": {stateOf(aSet(3), newMachine("a", interrupted), newMachine("b", broken),
			newMachine("c", up)), "a"},
		"marked as well, and Ready":         {stateOf(aSet(1), newMachine("a", marked)), "a"},
		"marked for an external remediator": {stateOf(aSet(1), newMachine("a", external)), "a"},
		"paused": {stateOf(aSet(1), newMachine("a", interruptedAnd(v1beta1.AnnotationPaused))),
			""},
		"exempt": {stateOf(aSet(1),
			newMachine("a", interruptedAnd(v1beta1.AnnotationSkipRemediation))), ""},
		"withdrawn":       {stateOf(aSet(1), newMachine("a", withdrawn)), ""},
		"in a frozen set": {stateOf(aSet(1, frozen), newMachine("a", interrupted)), ""},
	} {
		s := tc.state
		s.MaxInFlight, s.InFlight, s.NextRemediation = 1, 1, epoch.Add(time.Minute)
		p := Decide(s)
		if got := joinedNames(p.Remediate); got != tc.want || p.BackingOff {
			t.Errorf("%s: %q are replaced, want %q; backing off: %t", name, got, tc.want, p.BackingOff)
		}
	}
	s := stateOf(aSet(4), newMachine("a", interrupted), newMachine("b", broken), newMachine("c", broken),
		newMachine("d", interrupted))
	s.MaxInFlight = 1
	if got := joinedNames(Decide(s).Remediate); got != "a d b" {
		t.Errorf("with a budget of 1, %q are replaced", got)
	}
	s.NextRemediation = epoch.Add(time.Minute)
	if p := Decide(s); joinedNames(p.Remediate) != "a d" || !p.BackingOff {
		t.Errorf("during the backoff, %q are replaced, backing off: %t", joinedNames(p.Remediate), p.BackingOff)
	}
}

func joinedNames(machines []*v1beta1.Machine) string {
	var names []string
	for _, m := range machines {
		names = append(names, m.Name)
	}
	return strings.Join(names, " ")
}

// Rule interrupted-replaced-at-once: a set with too many machines first deletes those whose instance the cloud is about
// to terminate anyway.
func TestInterruptedMachinesAreDeletedFirst(t *testing.T) {
	p := Decide(stateOf(aSet(1), newMachine("a", up), newMachine("b", interrupted)))
	if got := joinedNames(p.Delete); got != "b" {
		t.Errorf("%q are deleted", got)
	}
}
