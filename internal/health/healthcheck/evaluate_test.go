package healthcheck

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func interruptionNotice(s *Subject) {
	condition(v1beta1.ConditionInterruptionNotice, metav1.ConditionTrue, v1beta1.ReasonPreemptionNotice, 19)(s)
}

// Interruptions on a spot market are not a meltdown.
//
// Rule: interrupted-not-unhealthy.
func TestInterruptedMachinesDoNotStopRemediation(t *testing.T) {
	all := fleet(10, 6, silent(20), interruptionNotice)
	silent(20)(&all[9])
	s := Situation{Now: minutes(60), Meltdown: DetectMeltdown(all, DefaultMeltdownThreshold)}
	if len(s.Meltdown) > 0 {
		t.Errorf("meltdown: %v", s.Meltdown)
	}
	j := Decide(policy(), all, s)
	if j.Restriction.Reason != "" || len(j.DesiredConditions) != 1 || j.DesiredConditions[0].Subject.Machine.Name != "m09" {
		t.Errorf("restriction: %+v, desired: %+v", j.Restriction, j.DesiredConditions)
	}
}

// Rules: unhealthy-after-timeout, health-policy-selection, health-clock-starts-late, machine-conditions-of-others,
// stopped-instance-unhealthy, power-not-remediated.
func TestEvaluate(t *testing.T) {
	with := func(change ...func(*Subject)) Subject { return runningSubject("a", change...) }
	stopped := func(since float64) func(*Subject) {
		return condition(v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonInstanceStopped, since)
	}
	power := func(wanted v1beta1.PowerState, step v1beta1.PowerStep, since float64) func(*Subject) {
		return func(s *Subject) {
			s.Machine.Spec.PowerState = wanted
			s.Machine.Status.Power = &v1beta1.PowerStatus{Step: step, Since: metav1.NewTime(minutes(since))}
		}
	}
	vanished := func(s *Subject) {
		phase(v1beta1.MachineFailed)(s)
		s.Machine.Status.FailureReason = v1beta1.FailureInstanceVanished
	}
	broken := condition("GPUHealthy", metav1.ConditionFalse, "Because", 20)
	gpu := policy(func(p *Policy) {
		p.MachineConditions = []v1beta1.UnhealthyMachineCondition{{Type: "GPUHealthy", Status: metav1.ConditionFalse,
			Timeout: metav1.Duration{Duration: 5 * time.Minute}}}
	})
	for _, tc := range []struct {
		name    string
		policy  Policy
		subject Subject
		now     float64
		since   float64
		want    Health
		trouble bool
		why     string
		recheck time.Duration
	}{
		{name: "a Ready node", subject: with(), now: 60, want: HealthHealthy},
		{name: "silent, before the timeout", subject: with(silent(20)), now: 29, want: HealthUnknown, trouble: true, why: "Ready",
			recheck: time.Minute},
		{name: "silent, after the timeout", subject: with(silent(20)), now: 30, want: HealthUnhealthy, trouble: true,
			why: "Condition Ready of node node-a (node-uid-a) is Unknown: Because."},
		{name: "not Ready, after the timeout", subject: with(node(corev1.NodeReady, corev1.ConditionFalse, 20)), now: 31,
			want: HealthUnhealthy, trouble: true, why: "is False"},
		{name: "a condition of the policy", subject: with(node("KernelDeadlock", corev1.ConditionTrue, 20)), now: 25,
			want: HealthUnhealthy, trouble: true, why: "KernelDeadlock"},
		{name: "a condition that is False", subject: with(node("KernelDeadlock", corev1.ConditionFalse, 20)), now: 60,
			want: HealthHealthy},
		{name: "a condition that the policy does not name", subject: with(node("DiskPressure", corev1.ConditionTrue, 20)),
			now: 60, want: HealthHealthy},
		{name: "two problems: the shorter timeout counts",
			subject: with(silent(20), node("KernelDeadlock", corev1.ConditionTrue, 20)), now: 22, want: HealthUnknown, trouble: true,
			why: "Ready", recheck: 3 * time.Minute},
		{name: "two problems, one after its timeout",
			subject: with(silent(20), node("KernelDeadlock", corev1.ConditionTrue, 20)), now: 26, want: HealthUnhealthy, trouble: true,
			why: "KernelDeadlock"},
		{name: "the node never reported", subject: with(func(s *Subject) { s.Node.Status.Conditions = nil }), now: 11,
			want: HealthUnhealthy, trouble: true, why: "NeverReported"},
		{name: "the timeout starts again after an outage", subject: with(silent(20)), now: 60, since: 55, want: HealthUnknown,
			trouble: true, why: "Ready", recheck: 5 * time.Minute},
		{name: "an outage before the problem does not matter", subject: with(silent(20)), now: 30, since: 15,
			want: HealthUnhealthy, trouble: true, why: "Ready"},
		{name: "transition time in the future", subject: with(silent(90)), now: 60, want: HealthUnknown, trouble: true, why: "Ready",
			recheck: 10 * time.Minute},

		{name: "the node is deleted, and the machine's controller has not confirmed it",
			subject: with(func(s *Subject) { s.Node = nil }), now: 60, want: HealthUnknown, trouble: true, why: "deleted"},
		{name: "the node is deleted", subject: with(func(s *Subject) {
			s.Node = nil
		}, condition(v1beta1.ConditionRegistered, metav1.ConditionFalse, v1beta1.ReasonNodeGone, 50)), now: 50,
			want: HealthUnhealthy, trouble: true, why: "deleted"},
		{name: "another node of the same name", subject: with(func(s *Subject) { s.Node.UID = "other" },
			condition(v1beta1.ConditionRegistered, metav1.ConditionFalse, v1beta1.ReasonNodeGone, 50)), now: 60, want: HealthUnhealthy,
			trouble: true, why: "deleted"},

		{name: "a condition of the machine, before the timeout", policy: gpu, subject: with(broken), now: 24, want: HealthUnknown,
			trouble: true, why: "GPUHealthy", recheck: time.Minute},
		{name: "a condition of the machine, after the timeout", policy: gpu, subject: with(broken), now: 25, want: HealthUnhealthy,
			trouble: true, why: "Condition GPUHealthy of machine a is False: Because."},
		{name: "a condition of the machine with another status", policy: gpu, subject: with(
			condition("GPUHealthy", metav1.ConditionUnknown, "Because", 20)), now: 60, want: HealthHealthy},
		{name: "a condition that the policy does not name", subject: with(broken), now: 60, want: HealthHealthy},
		{name: "a condition of the machine and a silent node", policy: gpu, subject: with(broken, silent(23)), now: 24,
			want: HealthUnknown, trouble: true, why: "Ready", recheck: time.Minute},
		{name: "a condition of the machine starts again after an outage", policy: gpu, subject: with(broken), now: 60,
			since: 58, want: HealthUnknown, trouble: true, why: "GPUHealthy", recheck: 3 * time.Minute},
		{name: "a condition of a machine with an instance and without a Node", policy: gpu, subject: starting(func(s *Subject) {
			s.Machine.Spec.ProviderID = "sim:///new"
		}, broken), now: 60, want: HealthUnhealthy, trouble: true, why: "GPUHealthy"},
		{name: "a condition of a machine without an instance", policy: gpu, subject: starting(broken), now: 60, want: HealthUnknown},
		{name: "a condition of a machine that is interrupted", policy: gpu, subject: with(broken, interruptionNotice), now: 60,
			want: HealthUnknown},

		{name: "about to be interrupted", subject: with(silent(20), interruptionNotice), now: 60, want: HealthUnknown},
		{name: "interrupted, as announced", subject: with(silent(20), interruptionNotice, phase(v1beta1.MachineFailed)), now: 60,
			want: HealthUnhealthy, trouble: true, why: "failed"},
		{name: "Failed", subject: with(phase(v1beta1.MachineFailed), func(s *Subject) {
			s.Machine.Status.FailureReason = v1beta1.FailureInstanceVanished
		}), now: 2, want: HealthUnhealthy, trouble: true, why: "InstanceVanished"},
		{name: "not Ready during an update", subject: with(phase(v1beta1.MachineUpdating), silent(20),
			condition(v1beta1.ConditionUpToDate, metav1.ConditionFalse, "Any", 19)), now: 35, want: HealthUnknown,
			recheck: 4 * time.Minute},
		{name: "not Ready after the timeout of an update", subject: with(phase(v1beta1.MachineUpdating), silent(20),
			condition(v1beta1.ConditionUpToDate, metav1.ConditionFalse, "Any", 19)), now: 40, want: HealthUnhealthy, trouble: true,
			why: "Ready"},

		{name: "starting, without a startup timeout", subject: starting(), now: 60, want: HealthUnknown},
		{name: "starting in time", policy: policy(func(p *Policy) { p.Startup = 8 * time.Minute }), subject: starting(),
			now: 5, want: HealthUnknown, recheck: 3 * time.Minute},
		{name: "starting for too long", policy: policy(func(p *Policy) { p.Startup = 8 * time.Minute }), subject: starting(),
			now: 8, want: HealthUnhealthy, trouble: true, why: "no Node 8m0s"},
		{name: "the startup timeout begins with the launch", policy: policy(func(p *Policy) {
			p.Startup = 8 * time.Minute
		}),
			subject: starting(condition(v1beta1.ConditionLaunched, metav1.ConditionTrue, v1beta1.ReasonInstanceLaunched, 2)),
			now:     9, want: HealthUnknown, recheck: time.Minute},
		{name: "timeouts.creation of the machine is shorter", policy: policy(func(p *Policy) { p.Startup = 8 * time.Minute }),
			subject: starting(func(s *Subject) {
				s.Machine.Spec.Timeouts.Creation = &metav1.Duration{Duration: 7 * time.Minute}
			}), now: 60, want: HealthUnknown},
		{name: "refused", policy: policy(func(p *Policy) { p.Startup = 8 * time.Minute }),
			subject: starting(condition(v1beta1.ConditionLaunched, metav1.ConditionFalse, v1beta1.ReasonInvalidConfiguration,
				1)), now: 60, want: HealthUnknown},
		{name: "without a target cluster", policy: policy(func(p *Policy) { p.Startup = 8 * time.Minute }),
			subject: starting(phase(v1beta1.MachineAvailable)), now: 60, want: HealthHealthy},
		{name: "stopped without a target cluster, before the timeout",
			subject: starting(phase(v1beta1.MachineUnhealthy), stopped(20)), now: 29, want: HealthUnknown, trouble: true,
			why: "InstanceStopped", recheck: time.Minute},
		{name: "stopped without a target cluster, after the timeout",
			subject: starting(phase(v1beta1.MachineUnhealthy), stopped(20)), now: 30, want: HealthUnhealthy, trouble: true,
			why: "Machine new is not Ready: InstanceStopped."},
		{name: "stopped without a target cluster, and the policy does not name silent kubelets",
			policy:  Policy{Name: "a"},
			subject: starting(phase(v1beta1.MachineUnhealthy), stopped(20)), now: 60, want: HealthUnknown},
		{name: "stopped by Machinist", subject: with(silent(20), power(v1beta1.PowerStopped, v1beta1.PowerStepStopped, 20)),
			now: 60, want: HealthUnknown},
		{name: "failed, and stopped by Machinist", subject: with(phase(v1beta1.MachineFailed),
			power(v1beta1.PowerStopped, v1beta1.PowerStepStopped, 20)), now: 60, want: HealthUnknown},
		{name: "starting for lack of capacity", subject: with(silent(20), power(v1beta1.PowerRunning, v1beta1.PowerStepStarting,
			21)), now: 60, want: HealthUnknown},
		{name: "vanished while it was stopped", subject: with(vanished,
			power(v1beta1.PowerStopped, v1beta1.PowerStepStopped, 20)), now: 60, want: HealthUnhealthy, trouble: true,
			why: "InstanceVanished"},
		{name: "silent after the start, before the timeout", subject: with(silent(20),
			power(v1beta1.PowerRunning, v1beta1.PowerStepBooting, 50)), now: 59, want: HealthUnknown, trouble: true, why: "Ready",
			recheck: time.Minute},
		{name: "silent after the start, after the timeout", subject: with(silent(20),
			power(v1beta1.PowerRunning, v1beta1.PowerStepBooting, 50)), now: 60, want: HealthUnhealthy, trouble: true,
			why: "Ready"},
		{name: "the provider cannot stop the instance", subject: with(silent(20),
			condition(v1beta1.ConditionPowerStateReached, metav1.ConditionFalse, v1beta1.ReasonPowerNotSupported, 1),
			func(s *Subject) { s.Machine.Spec.PowerState = v1beta1.PowerStopped }), now: 30, want: HealthUnhealthy,
			trouble: true, why: "Ready"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := tc.policy
			if p.Name == "" {
				p = policy()
			}
			since := time.Time{}
			if tc.since > 0 {
				since = minutes(tc.since)
			}
			v := Evaluate(p, tc.subject.Machine, tc.subject.Node, minutes(tc.now),
				Clock{EarliestStart: since, LastInterruption: since, LeaderSince: since})
			if v.Health != tc.want || v.InTrouble != tc.trouble || v.RecheckAfter != tc.recheck {
				t.Errorf("%+v, want %s, in trouble %t, recheck %s", v, tc.want, tc.trouble, tc.recheck)
			}
			if !strings.Contains(v.Explanation, tc.why) || (tc.why == "") != (v.Explanation == "") {
				t.Errorf("why %q, want %q", v.Explanation, tc.why)
			}
		})
	}
}

// If each manager is terminated before a timeout ends, no manager observes a problem for long enough. The transition
// times of the conditions must then show that the problem is old.
//
// Rule: health-clock-bounded-over-leaders.
func TestNewLeaderFindsOldProblems(t *testing.T) {
	p := policy()
	silent := runningSubject("a", node(corev1.NodeReady, corev1.ConditionUnknown, 0))
	for _, tc := range []struct {
		name                    string
		leads, outageEnded, now float64
		want                    Health
		recheck                 time.Duration
	}{
		{"before three timeouts", 25, 0, 29, HealthUnknown, 6 * time.Minute},
		{"after three timeouts, but not by a clock that differs by 15 minutes", 40, 0, 44, HealthUnknown, time.Minute},
		{"after that, right after the process began to lead", 60, 0, 60, HealthUnknown, time.Minute},
		{"after that, when the process has led for a tenth of the timeout", 60, 0, 61, HealthUnhealthy, 0},
		{"after an outage that the process has seen", 60, 60, 61, HealthUnknown, 9 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clock := Clocks{StableSince: minutes(tc.leads), OutageEnded: minutes(tc.outageEnded)}.ForDomains("")
			if v := Evaluate(p, silent.Machine, silent.Node, minutes(tc.now), clock); v.Health != tc.want ||
				v.RecheckAfter != tc.recheck {
				t.Errorf("%+v, want %s and to check again after %s", v, tc.want, tc.recheck)
			}
		})
	}
}

// For all times of problems and observations, three things must be true. A machine is not unhealthy before its timeout
// ends. RecheckAfter is the time at which the result changes. A machine does not become healthy without an event.
//
// Rules: unhealthy-after-timeout, health-clock-starts-late.
func FuzzEvaluationsOnlyGetWorseWithTime(f *testing.F) {
	f.Add(int16(20), int16(0), int16(29), int16(10), uint8(0), uint8(0))
	f.Add(int16(20), int16(55), int16(60), int16(10), uint8(1), uint8(1))
	f.Add(int16(-5), int16(3), int16(4), int16(1), uint8(2), uint8(2))
	f.Add(int16(90), int16(0), int16(60), int16(0), uint8(3), uint8(3))
	f.Fuzz(func(t *testing.T, began, since, now, timeout int16, shape, status uint8) {
		limit := time.Duration(max(0, timeout)) * time.Minute
		p := policy(func(p *Policy) {
			p.Startup = limit
			for i := range p.Conditions {
				p.Conditions[i].Timeout.Duration = limit
			}
		})
		statuses := []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionFalse, corev1.ConditionTrue, "",
			"nonsense"}
		s := runningSubject("a", node(corev1.NodeReady, statuses[int(status)%len(statuses)], float64(began)))
		switch shape % 5 {
		case 1:
			s.Node = nil
			condition(v1beta1.ConditionRegistered, metav1.ConditionFalse, v1beta1.ReasonNodeGone, float64(began))(&s)
		case 2:
			s = starting(func(s *Subject) { s.Machine.CreationTimestamp = metav1.NewTime(minutes(float64(began))) })
		case 3:
			phase(v1beta1.MachineUpdating)(&s)
		case 4:
			s.Node.Status.Conditions, s.Node.CreationTimestamp = nil, metav1.NewTime(minutes(float64(began)))
		}
		at, from := minutes(float64(now)), minutes(float64(min(since, now)))
		clock := Clock{EarliestStart: from, LastInterruption: from, LeaderSince: from}
		v := Evaluate(p, s.Machine, s.Node, at, clock)
		switch v.Health {
		case HealthHealthy:
			if v.InTrouble || v.Explanation != "" || v.RecheckAfter != 0 {
				t.Fatalf("%+v", v)
			}
		case HealthUnhealthy:
			if !v.InTrouble || v.Explanation == "" || v.RecheckAfter != 0 {
				t.Fatalf("%+v", v)
			}
			if at.Sub(from) < limit && shape%5 != 1 {
				t.Fatalf("unhealthy %s after clocks began, with a limit of %s", at.Sub(from), limit)
			}
		case HealthUnknown:
			if v.RecheckAfter < 0 {
				t.Fatalf("%+v", v)
			}
			if v.RecheckAfter > 0 && v.InTrouble && s.Node != nil && !minutes(float64(began)).After(at) {
				if later := Evaluate(p, s.Machine, s.Node, at.Add(v.RecheckAfter), clock); later.Health != HealthUnhealthy {
					t.Fatalf("%+v, and after %s %+v", v, v.RecheckAfter, later)
				}
				if before := Evaluate(p, s.Machine, s.Node, at.Add(v.RecheckAfter-1), clock); before.Health == HealthUnhealthy {
					t.Fatalf("%+v, and a moment before it is due %+v", v, before)
				}
			}
		default:
			t.Fatalf("%+v", v)
		}
		if v.Health == HealthUnhealthy {
			if later := Evaluate(p, s.Machine, s.Node, at.Add(time.Hour), clock); later.Health != HealthUnhealthy {
				t.Fatalf("%+v, and an hour later %+v", v, later)
			}
		}
	})
}
