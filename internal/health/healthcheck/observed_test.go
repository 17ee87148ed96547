package healthcheck

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// shortTimeouts returns a policy whose timeouts are shorter than the differences between the clocks in these tests.
func shortTimeouts() Policy {
	return policy(func(p *Policy) {
		p.Startup = time.Minute
		for i := range p.Conditions {
			p.Conditions[i].Timeout.Duration = time.Minute
		}
	})
}

// problems creates one machine for each kind of problem. According to the transition times, all problems began at
// minute 30.
func problems() map[string]Subject {
	return map[string]Subject{
		"silent":     runningSubject("silent", silent(30)),
		"not Ready":  runningSubject("unready", node(corev1.NodeReady, corev1.ConditionFalse, 30)),
		"a deadlock": runningSubject("deadlock", node("KernelDeadlock", corev1.ConditionTrue, 30)),
		"starting":   starting(func(s *Subject) { s.Machine.CreationTimestamp = metav1.NewTime(minutes(30)) }),
	}
}

// Rule: health-clock-is-own, invariant I6.
func TestTimeoutsUseTheOwnClock(t *testing.T) {
	for name, subject := range problems() {
		for _, skew := range []float64{-10, 0, 10} {
			t.Run(fmt.Sprintf("%s, %+v minutes", name, skew), func(t *testing.T) {
				var seen *Observations
				evaluate := func(truth float64, s Subject) Evaluation {
					seen = seen.newPass()
					leads := minutes(5 + skew)
					return Evaluate(shortTimeouts(), s.Machine, s.Node, minutes(truth+skew),
						Clocks{StableSince: leads, OutageEnded: leads, Observations: seen}.ForDomains(""))
				}
				for _, truth := range []float64{30, 30.5, 30.99} {
					if v := evaluate(truth, subject); v.Health != HealthUnknown || v.RecheckAfter <= 0 ||
						v.RecheckAfter > time.Minute {
						t.Fatalf("minute %v: %+v, want unknown for the rest of the minute", truth, v)
					}
				}
				if v := evaluate(31, subject); v.Health != HealthUnhealthy {
					t.Fatalf("after a minute: %+v, want unhealthy", v)
				}
				if len(seen.previous) > 1 || len(seen.current) > 1 {
					t.Errorf("remembers %v and %v", seen.previous, seen.current)
				}
			})
		}
	}
}

// The health check finds a problem even if no process is the leader for as long as the timeout. It must not find the
// problem before the timeout ends.
//
// Rules: health-clock-bounded-over-leaders, health-clock-is-own.
func TestShortLivedLeadersFindProblems(t *testing.T) {
	for name, subject := range problems() {
		for _, skew := range []float64{-10, 10} {
			t.Run(fmt.Sprintf("%s, %+v minutes", name, skew), func(t *testing.T) {
				found := -1.0
				for truth := 30.0; truth < 80; truth += 0.5 {
					// The process has been the leader for at least a tenth of the timeout.
					leads := minutes(truth + skew - 0.25)
					v := Evaluate(shortTimeouts(), subject.Machine, subject.Node, minutes(truth+skew),
						Clocks{StableSince: leads, Observations: (*Observations)(nil).newPass()}.ForDomains(""))
					if v.Health == HealthUnhealthy {
						found = truth - 30
						break
					}
				}
				if found < 3 || found > 3+15+10 {
					t.Errorf("unhealthy after %v minutes, want between 3 (three timeouts) and 28 (15 minutes more by a clock that differs by 10)", found)
				}
			})
		}
	}
}

// Rule: health-clock-is-own.
func TestChangedSignalBeginsAgain(t *testing.T) {
	s := Signal{UID: "node", Type: "Ready", Status: "Unknown", StartTime: minutes(1)}
	seen := (*Observations)(nil).newPass()
	seen.firstObserved(s, minutes(10))
	seen = seen.newPass()
	for what, other := range map[string]Signal{
		"another Node":            {UID: "other", Type: "Ready", Status: "Unknown", StartTime: minutes(1)},
		"another condition":       {UID: "node", Type: "DiskPressure", Status: "Unknown", StartTime: minutes(1)},
		"another status":          {UID: "node", Type: "Ready", Status: "False", StartTime: minutes(1)},
		"another transition time": {UID: "node", Type: "Ready", Status: "Unknown", StartTime: minutes(2)},
	} {
		if at := seen.firstObserved(other, minutes(11)); !at.Equal(minutes(11)) {
			t.Errorf("%s was observed at %s", what, at)
		}
	}
	local := s
	local.StartTime = s.StartTime.In(time.FixedZone("here", 3600))
	if at := seen.firstObserved(local, minutes(11)); !at.Equal(minutes(10)) {
		t.Errorf("the same time in another zone was observed at %s", at)
	}
	if at := seen.newPass().firstObserved(s, minutes(9)); !at.Equal(minutes(9)) {
		t.Errorf("after the clock was set back, the signal was observed at %s", at)
	}
}

// A condition that a health check may name triggers a pass. A condition of Machinist that no check evaluates does not.
//
// Rules: machine-conditions-of-others, settled-health-no-write.
func TestConditionsOfOtherControllersTriggerAPass(t *testing.T) {
	was := runningSubject("a").Machine
	for kind, triggers := range map[string]bool{"GPUHealthy": true, v1beta1.ConditionDrained: false,
		v1beta1.ConditionNodeHealthy: false, v1beta1.ConditionUpToDate: true} {
		is := was.DeepCopy()
		condition(kind, metav1.ConditionFalse, "Because", 20)(&Subject{Machine: is})
		if concerns(was, is) != triggers || concerns(is, was) != triggers {
			t.Errorf("condition %s triggers a pass: %t", kind, !triggers)
		}
	}
}
