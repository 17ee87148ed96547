package healthcheck

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
)

func situation(minute float64) Situation { return Situation{Now: minutes(minute)} }

func notStarted(n int, change ...func(*Subject)) (all []Subject) {
	for i := range n {
		s := starting(change...)
		s.Machine.Name = fmt.Sprintf("new%02d", i)
		all = append(all, s)
	}
	return all
}

func launchFailed(reason v1beta1.MachineFailureReason) func(*Subject) {
	return func(s *Subject) {
		s.Machine.Status.Phase, s.Machine.Status.FailureReason = v1beta1.MachineFailed, reason
	}
}

func marked(j Decision) (names []string) {
	for _, w := range j.DesiredConditions {
		if w.RequestsReplacement {
			names = append(names, w.Subject.Machine.Name)
		}
	}
	return names
}

// Rules: remediation-confirmed-live, max-unhealthy-stops-remediation, remediation-by-strategy,
// frozen-set-no-remediation, meltdown-stops-remediation, no-judgement-in-outage, remediation-retries-limited,
// failed-launches-not-counted.
func TestDecide(t *testing.T) {
	most := func(value string) Policy {
		return policy(func(p *Policy) { p.MaxUnhealthy = intstr.Parse(value) })
	}
	between := func(text string) Policy {
		c := &v1beta1.MachineHealthCheck{Spec: v1beta1.MachineHealthCheckSpec{UnhealthyRange: text}}
		return policy(func(p *Policy) { p.MaxUnhealthy, p.Range = intstr.FromInt32(0), PolicyOf(c).Range })
	}
	retries := func(n int32) Policy { return policy(func(p *Policy) { p.MaxRetries = &n }) }
	row := func(n int, left time.Duration) func(*Subject) {
		return func(s *Subject) { s.Retries, s.RetriesResetIn = n, left }
	}
	inMeltdown := func(s Situation, domains ...string) Situation {
		s.Meltdown = Meltdown{}
		for _, d := range domains {
			s.Meltdown[d] = Share{4, 4}
		}
		return s
	}
	for _, tc := range []struct {
		name        string
		policy      Policy
		subjects    []Subject
		s           Situation
		marks       int
		restriction string
		message     string
		healthy     int
		allowed     int
		targets     int
		protected   int
	}{
		{name: "all are well", subjects: fleet(10, 0), s: situation(60), healthy: 10, allowed: 4},
		{name: "one is broken", subjects: fleet(10, 1, silent(20)), s: situation(60), marks: 1, healthy: 9, allowed: 3, targets: 1},
		{name: "as many unhealthy as allowed", subjects: fleet(10, 4, silent(20)), s: situation(60), marks: 4, healthy: 6, targets: 4},
		{name: "one more unhealthy than allowed", subjects: fleet(10, 5, silent(20)), s: situation(60), restriction: v1beta1.ReasonTooManyUnhealthy,
			message: "5 of 10 machines are not well, and remediation stops at more than 4 (maxUnhealthy 40%).", healthy: 5,
			targets: 5},
		{name: "machines that may recover count too", subjects: append(fleet(9, 4, silent(20)), runningSubject("z", silent(55))),
			s: situation(60), restriction: v1beta1.ReasonTooManyUnhealthy, message: "5 of 10", healthy: 5, targets: 4},
		{name: "starting machines do not count", subjects: append(fleet(9, 3, silent(20)), starting()), s: situation(60), marks: 3,
			healthy: 6, allowed: 1, targets: 3},
		// Rule: failed-launches-not-counted.
		{name: "failed launches do not count", subjects: append(fleet(10, 4, silent(20)),
			notStarted(30, launchFailed(v1beta1.FailureInsufficientResources))...), s: situation(60), marks: 4, healthy: 6,
			targets: 34},
		{name: "failed launches do not raise the limit", subjects: append(fleet(10, 5, silent(20)),
			notStarted(30, launchFailed(v1beta1.FailureCreateError))...), s: situation(60),
			restriction: v1beta1.ReasonTooManyUnhealthy, message: "5 of 10 machines", healthy: 5, targets: 35},
		{name: "slow launches do not count", policy: policy(func(p *Policy) {
			p.Startup = 5 * time.Minute
		}), subjects: append(fleet(10, 4, silent(20)), notStarted(6)...), s: situation(60), marks: 10, healthy: 6,
			targets: 10},
		{name: "machines that did not join count", subjects: append(fleet(10, 1, silent(20)),
			notStarted(8, launchFailed(v1beta1.FailureJoinClusterTimeout))...), s: situation(60),
			restriction: v1beta1.ReasonTooManyUnhealthy, message: "9 of 18", healthy: 9, targets: 9},
		{name: "machines whose instance vanished count", subjects: append(fleet(10, 1, silent(20)),
			fleet(8, 8, launchFailed(v1beta1.FailureInstanceVanished))...), s: situation(60),
			restriction: v1beta1.ReasonTooManyUnhealthy, message: "9 of 18", healthy: 9, targets: 9},
		{name: "a percentage is rounded down", policy: most("39%"), subjects: fleet(10, 4, silent(20)), s: situation(60),
			restriction: v1beta1.ReasonTooManyUnhealthy, healthy: 6, targets: 4},
		{name: "the limit is at least one", policy: most("1%"), subjects: fleet(3, 1, silent(20)), s: situation(60), marks: 1, healthy: 2,
			targets: 1},
		{name: "unless it is 0%", policy: most("0%"), subjects: fleet(3, 1, silent(20)), s: situation(60),
			restriction: v1beta1.ReasonTooManyUnhealthy, healthy: 2, targets: 1},
		{name: "or 0", policy: most("0"), subjects: fleet(3, 1, silent(20)), s: situation(60),
			restriction: v1beta1.ReasonTooManyUnhealthy, healthy: 2, targets: 1},
		{name: "a number", policy: most("2"), subjects: fleet(10, 3, silent(20)), s: situation(60),
			restriction: v1beta1.ReasonTooManyUnhealthy, healthy: 7, targets: 3},
		{name: "an invalid value is the default", policy: most("many"), subjects: fleet(10, 4, silent(20)), s: situation(60),
			marks: 4, healthy: 6, targets: 4},
		// Rule: unhealthy-range-limits-remediation.
		{name: "no machine is unhealthy, and a range", policy: between("[2-4]"), subjects: fleet(10, 0), s: situation(60), healthy: 10},
		{name: "fewer than the range", policy: between("[2-4]"), subjects: fleet(10, 1, silent(20)), s: situation(60),
			restriction: v1beta1.ReasonTooFewUnhealthy, healthy: 9, targets: 1,
			message: "1 of 10 machines are not well, and remediation starts at 2 (unhealthyRange [2-4])."},
		{name: "the lower end of the range", policy: between("[2-4]"), subjects: fleet(10, 2, silent(20)), s: situation(60),
			marks: 2, healthy: 8, allowed: 2, targets: 2},
		{name: "the upper end of the range", policy: between("[2-4]"), subjects: fleet(10, 4, silent(20)), s: situation(60),
			marks: 4, healthy: 6, targets: 4},
		{name: "more than the range", policy: between("[2-4]"), subjects: fleet(10, 5, silent(20)), s: situation(60),
			restriction: v1beta1.ReasonTooManyUnhealthy, healthy: 5, targets: 5,
			message: "5 of 10 machines are not well, and remediation stops at more than 4 (unhealthyRange [2-4])."},
		{name: "more than the range, and a higher maxUnhealthy", subjects: fleet(10, 5, silent(20)), s: situation(60),
			policy: policy(func(p *Policy) {
				p.MaxUnhealthy, p.Range = intstr.FromString("100%"), between("[2-4]").Range
			}), restriction: v1beta1.ReasonTooManyUnhealthy, healthy: 5, targets: 5},
		{name: "machines that may recover count for the range", policy: between("[2-2]"), s: situation(60), marks: 1,
			subjects: append(fleet(9, 1, silent(20)), runningSubject("z", silent(55))), healthy: 8, targets: 1},
		{name: "fewer than the range, and a request of a user", policy: between("[2-4]"), s: situation(60), marks: 1,
			subjects: fleet(10, 1, annotated(v1beta1.AnnotationRemediate, "")), healthy: 10},
		{name: "no machines", subjects: nil, s: situation(60), allowed: 1},

		{name: "type None", policy: policy(func(p *Policy) { p.Type = v1beta1.RemediationNone }),
			subjects: fleet(10, 1, silent(20)), s: situation(60), healthy: 9, allowed: 3, targets: 1},
		{name: "a failed machine needs no mark", subjects: fleet(10, 1, phase(v1beta1.MachineFailed)), s: situation(60), healthy: 9,
			allowed: 3, targets: 1},
		{name: "a failed machine with type External is marked", policy: policy(func(p *Policy) { p.Type = v1beta1.RemediationExternal }),
			subjects: fleet(10, 1, phase(v1beta1.MachineFailed)), s: situation(60), marks: 1, healthy: 9, allowed: 3,
			targets: 1},
		{name: "a user requests remediation", subjects: fleet(10, 1, annotated(v1beta1.AnnotationRemediate, "")), s: situation(60), marks: 1,
			healthy: 10, allowed: 4},
		{name: "a user requests remediation, in spite of all obstacles", policy: most("0"),
			subjects: fleet(10, 3, annotated(v1beta1.AnnotationRemediate, ""), silent(20), row(9, time.Hour)),
			s:        inMeltdown(situation(60), ""), marks: 3, restriction: v1beta1.ReasonMeltdown, healthy: 7, targets: 3},

		{name: "a meltdown of everything", policy: most("100%"), subjects: fleet(10, 4, silent(20)), s: inMeltdown(situation(60), ""),
			restriction: v1beta1.ReasonMeltdown, message: "4 of 4 running machines", healthy: 6, targets: 4},
		{name: "a meltdown of the zone of all unhealthy machines", subjects: fleet(10, 2, silent(20), in("a")),
			s: inMeltdown(situation(60), "a", "b"), restriction: v1beta1.ReasonMeltdown, message: "have problems: 4 of 4 in a. No machine in",
			healthy: 8, allowed: 2, targets: 2},
		{name: "a meltdown of a zone, and an unhealthy machine in another zone", subjects: append(fleet(9, 2, silent(20), in("a")),
			runningSubject("z", silent(20), in("c"))), s: inMeltdown(situation(60), "a"), marks: 1, restriction: v1beta1.ReasonMeltdown,
			healthy: 7, allowed: 1, targets: 3},
		{name: "a meltdown of a zone without machines of this policy", subjects: fleet(10, 1, silent(20), in("c")),
			s: inMeltdown(situation(60), "a"), marks: 1, healthy: 9, allowed: 3, targets: 1},
		{name: "timeouts start again after the meltdown of the domain", subjects: fleet(10, 1, silent(20), in("a")),
			s: Situation{Now: minutes(60), Clocks: Clocks{RecoveryTimes: map[string]time.Time{"a": minutes(51)}}}, healthy: 9,
			allowed: 3},
		{name: "timeouts start again after a meltdown of everything", subjects: fleet(10, 1, silent(20), in("a")),
			s: Situation{Now: minutes(60), Clocks: Clocks{RecoveryTimes: map[string]time.Time{"": minutes(51)}}}, healthy: 9,
			allowed: 3},
		{name: "timeouts continue after the meltdown of another domain", subjects: fleet(10, 1, silent(20), in("a")),
			s: Situation{Now: minutes(60), Clocks: Clocks{RecoveryTimes: map[string]time.Time{"b": minutes(51)}}}, marks: 1,
			healthy: 9, allowed: 3, targets: 1},

		{name: "the owner is frozen", subjects: fleet(10, 1, silent(20), func(s *Subject) { s.OwnerFrozen = true }),
			s: situation(60), restriction: v1beta1.ReasonFrozen, message: "The owners of m00 are frozen.", healthy: 9,
			allowed: 3, targets: 1},

		{name: "fewer retries than the limit", policy: retries(2), subjects: fleet(10, 1, silent(20), row(2, time.Hour)), s: situation(60),
			marks: 1, healthy: 9, allowed: 3, targets: 1},
		{name: "too many retries", policy: retries(2), subjects: fleet(10, 1, silent(20), row(3, time.Hour)), s: situation(60),
			restriction: v1beta1.ReasonRetriesExhausted, message: "m00 will not be replaced, because at least 3", healthy: 9, allowed: 3, targets: 1,
			protected: 1},
		{name: "too many retries, and the machine failed", policy: retries(0), subjects: fleet(10, 1, phase(v1beta1.MachineFailed),
			row(1, time.Hour)), s: situation(60), restriction: v1beta1.ReasonRetriesExhausted, healthy: 9, allowed: 3,
			targets: 1, protected: 1},
		{name: "too many retries, before the machine fails", policy: retries(2), subjects: fleet(10, 1, row(3, time.Hour)), s: situation(60),
			healthy: 10, allowed: 4, protected: 1},
		{name: "too many retries, but the machine worked long enough", policy: retries(2), subjects: fleet(10, 1, silent(20), row(3, 0)), s: situation(60), marks: 1,
			healthy: 9, allowed: 3, targets: 1},
		{name: "retries without a limit", subjects: fleet(10, 1, silent(20), row(99, time.Hour)), s: situation(60), marks: 1, healthy: 9,
			allowed: 3, targets: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := tc.policy
			if p.Name == "" {
				p = policy()
			}
			j := Decide(p, tc.subjects, tc.s)
			if got := marked(j); len(got) != tc.marks {
				t.Errorf("marks %v, want %d", got, tc.marks)
			}
			if n := len(j.DesiredConditions) - tc.marks; n != tc.protected {
				t.Errorf("%d are held, want %d", n, tc.protected)
			}
			if j.Restriction.Reason != tc.restriction || !strings.Contains(j.Restriction.Message, tc.message) {
				t.Errorf("restriction %+v, want %s %q", j.Restriction, tc.restriction, tc.message)
			}
			if j.ExpectedCount != len(tc.subjects) || j.HealthyCount != tc.healthy || j.AllowedUnhealthy != tc.allowed ||
				len(j.Targets) != tc.targets {
				t.Errorf("expected %d, healthy %d, allowed %d, targets %v; want %d, %d, %d, %d", j.ExpectedCount, j.HealthyCount, j.AllowedUnhealthy,
					j.Targets, len(tc.subjects), tc.healthy, tc.allowed, tc.targets)
			}
		})
	}
}

func TestNewestMachineIsMarkedFirst(t *testing.T) {
	young := runningSubject("young", silent(20), func(s *Subject) { s.Machine.CreationTimestamp = metav1.NewTime(minutes(10)) })
	j := Decide(policy(), append(fleet(9, 2, silent(20)), young), situation(60))
	if got := marked(j); !slices.Equal(got, []string{"young", "m00", "m01"}) {
		t.Errorf("marked in the order %v", got)
	}
	if !slices.Equal(j.Targets, []string{"m00", "m01", "young"}) {
		t.Errorf("targets %v", j.Targets)
	}
	want := ConditionReason{v1beta1.ReasonMachineHealthCheck,
		"MachineHealthCheck workers: Condition Ready of node node-young (node-uid-young) is Unknown: Because. Node UID: node-uid-young."}
	if got := j.DesiredConditions[0].Reason; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestRecheckIsDueWhenTheFirstEvaluationChanges(t *testing.T) {
	j := Decide(policy(), []Subject{runningSubject("a", silent(55)), runningSubject("b", silent(52)), runningSubject("c")}, situation(60))
	if j.RecheckAfter != 2*time.Minute {
		t.Errorf("checks again after %s", j.RecheckAfter)
	}
}

// Rule: remediation-annotations.
func TestExemptMachinesAreNotEvaluated(t *testing.T) {
	for _, tc := range []struct {
		name                string
		change              func(*Subject)
		evaluable, readOnly bool
	}{
		{"unchanged", func(*Subject) {}, true, false},
		{"skip-remediation", annotated(v1beta1.AnnotationSkipRemediation, ""), false, false},
		{"paused", annotated(v1beta1.AnnotationPaused, ""), false, true},
		{"paused by the annotation of Cluster API", annotated(v1beta1.AnnotationClusterAPIPaused, ""), false, true},
		{"preserved", annotated(v1beta1.AnnotationPreservedUntil, "2026-03-02T00:00:00Z"), false, true},
		{"being deleted", func(s *Subject) { s.Machine.DeletionTimestamp = &metav1.Time{Time: minutes(5)} }, false, true},
		{"of this schema", func(s *Subject) {
			s.Machine.Labels = map[string]string{v1beta1.LabelTypeVersion: v1beta1.TypeVersion}
		}, true, false},
		{"of another schema", func(s *Subject) { s.Machine.Labels = map[string]string{v1beta1.LabelTypeVersion: "v9"} },
			false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := runningSubject("a", tc.change).Machine
			if evaluable(m) != tc.evaluable || readOnly(m) != tc.readOnly {
				t.Errorf("evaluable %t, read-only %t", evaluable(m), readOnly(m))
			}
		})
	}
}

// Rule: meltdown-stops-remediation.
func TestDetectMeltdown(t *testing.T) {
	// zones creates machines in one or more zones. The arguments are two numbers for each zone: how many machines it
	// has, and how many of these have problems.
	zones := func(unwell ...int) (all []Subject) {
		for zone := 0; zone < len(unwell); zone += 2 {
			for i := range unwell[zone] {
				s := runningSubject(fmt.Sprintf("%c%d", 'a'+zone/2, i), in(string(rune('a'+zone/2))))
				if i < unwell[zone+1] {
					silent(20)(&s)
				}
				all = append(all, s)
			}
		}
		return all
	}
	for _, tc := range []struct {
		name     string
		subjects []Subject
		want     string
	}{
		{"all are well", zones(10, 0), ""},
		{"half are not well", zones(10, 5), ""},
		{"exactly at the threshold", zones(20, 11), ""},
		{"above the threshold", zones(20, 12), "everywhere a"},
		{"none is well", zones(10, 10, 10, 10), "everywhere a b"},
		{"one zone of three", zones(10, 10, 10, 0, 10, 0), "a"},
		{"one zone of two, and therefore everywhere", zones(10, 10, 5, 0), "everywhere a"},
		{"two machines are too few", zones(2, 2), ""},
		{"a zone of two machines is too small", zones(2, 2, 10, 0), ""},
		{"a zone of three machines", zones(3, 2, 10, 0), "a"},
		{"unknown zones", fleet(10, 6, silent(20)), "everywhere"},
		{"deleted nodes", fleet(10, 6, func(s *Subject) { s.Node = nil }), "everywhere"},
		{"nodes of other machines", fleet(10, 6, func(s *Subject) { s.Node.UID = "other" }), "everywhere"},
		// Rule meltdown-per-namespace: if there are several namespaces, each counts separately.
		{"one namespace of two, few in total", namespaces(4, 4, 20, 0), "namespace a"},
		{"one namespace of two, many in total", namespaces(20, 20, 4, 0), "namespace a"},
		{"one namespace, and a single machine in another", namespaces(20, 20, 1, 0), "namespace a"},
		{"both namespaces", namespaces(4, 4, 4, 4), "everywhere"},
		{"two namespaces of three", namespaces(20, 20, 10, 6, 2, 0), "namespace a namespace b"},
		{"one namespace, and small ones", namespaces(20, 20, 2, 2, 2, 2), "everywhere"},
		{"a namespace of two machines is too small", namespaces(2, 2, 20, 0), ""},
		{"one namespace of two in a zone", append(namespaces(10, 10, 10, 0), inZone("a", namespaces(4, 4, 4, 0))...),
			"namespace a"},
		{"all of a namespace in a zone, and other zones are well",
			slices.Concat(inZone("a", namespaces(20, 1, 30, 30)), inZone("b", namespaces(0, 0, 30, 0))), "a of namespace b"},
		{"all namespaces in a zone",
			slices.Concat(inZone("a", namespaces(4, 4, 4, 4)), inZone("b", namespaces(20, 0, 20, 0))), "a"},
		{"starting machines", fleet(10, 6, silent(20), phase(v1beta1.MachineProvisioned)), ""},
		{"failed machines", fleet(10, 6, silent(20), phase(v1beta1.MachineFailed)), ""},
		{"machines that are being deleted", fleet(10, 6, silent(20), func(s *Subject) {
			s.Machine.DeletionTimestamp = &metav1.Time{Time: minutes(5)}
		}), ""},
		{"machines that are unhealthy already", fleet(10, 6, silent(20), phase(v1beta1.MachineUnhealthy)), "everywhere"},
		{"paused machines", fleet(10, 6, silent(20), annotated(v1beta1.AnnotationPaused, "")),
			"everywhere"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := DetectMeltdown(tc.subjects, DefaultMeltdownThreshold)
			var got []string
			for domain := range d {
				if domain == everywhere {
					domain = "everywhere"
				}
				got = append(got, domain)
			}
			slices.SortStableFunc(got, func(a, b string) int {
				if len(a) != len(b) {
					return len(b) - len(a)
				}
				return strings.Compare(a, b)
			})
			if strings.Join(got, " ") != tc.want {
				t.Errorf("meltdown in %v, want %q", got, tc.want)
			}
		})
	}
}

// Rule: meltdown-stops-remediation.
func TestEndOfMeltdownIsRemembered(t *testing.T) {
	r := newState()
	began, ended := r.trackMeltdown(minutes(1), Meltdown{"": {}, "a": {}})
	if len(began) != 2 || len(ended) != 0 {
		t.Errorf("began %v, ended %v", began, ended)
	}
	if began, ended = r.trackMeltdown(minutes(2), Meltdown{"a": {}}); len(began) != 0 ||
		!slices.Equal(ended, []string{""}) {
		t.Errorf("began %v, ended %v", began, ended)
	}
	if began, ended = r.trackMeltdown(minutes(3), Meltdown{}); len(began) != 0 || !slices.Equal(ended, []string{"a"}) {
		t.Errorf("began %v, ended %v", began, ended)
	}
	c := Clocks{StableSince: minutes(1), RecoveryTimes: r.recovered}
	for domain, want := range map[string]time.Time{"a": minutes(3), "b": minutes(2), "": minutes(2)} {
		if got := c.ForDomains(domain).EarliestStart; !got.Equal(want) {
			t.Errorf("clocks in %q run from %s, want %s", domain, got, want)
		}
	}
	r.statusWritten["deleted"], r.statusWritten["exists"] = minutes(3), minutes(3)
	r.forgetOld(minutes(3), map[types.UID]bool{"exists": true})
	if len(r.statusWritten) != 1 || r.statusWritten["exists"].IsZero() || len(r.recovered) != 2 {
		t.Errorf("remembered: %v and %v", r.statusWritten, r.recovered)
	}
	if r.forgetOld(minutes(3).Add(recoveryRetention), nil); len(r.recovered) != 1 {
		t.Errorf("after %s, the ends of meltdowns are %v", recoveryRetention, r.recovered)
	}
}

// An attacker with machines in two zones lets all of them fail in one zone, so that most machines of that zone have
// problems. The machines of other namespaces in the zone must still be remediated.
//
// Rule: meltdown-per-namespace.
func TestAttackTenantStopsRemediationInZone(t *testing.T) {
	all := slices.Concat(inZone("a", namespaces(20, 1, 30, 30)), inZone("b", namespaces(0, 0, 30, 0)))
	d := DetectMeltdown(all, DefaultMeltdownThreshold)
	for _, s := range all {
		if victim := s.Machine.Namespace == "a"; victim && d.Affects(s.domains()...) {
			t.Fatalf("machine %s of the other namespace is in the meltdown: %v", s.Machine.Name, d)
		}
	}
}
