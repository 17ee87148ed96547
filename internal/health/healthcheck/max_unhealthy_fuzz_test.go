package healthcheck

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
)

// Decide marks only machines that may be remediated, and gives a reason for each unhealthy machine that it does not
// mark.
//
// Rules: max-unhealthy-stops-remediation, frozen-set-no-remediation, meltdown-stops-remediation,
// remediation-retries-limited.
func FuzzDecide(f *testing.F) {
	f.Add([]byte{0, 1, 0, 1, 0, 1, 1, 20, 2, 1}, uint8(40), uint8(55), true)
	f.Add([]byte{1, 1, 5, 1, 9, 1, 13, 1, 0, 0, 0, 0}, uint8(100), uint8(55), true)
	f.Add([]byte{35, 0, 67, 0, 4, 9, 130, 3, 7, 7, 255, 255}, uint8(3), uint8(0), false)
	f.Add([]byte{1, 1, 1, 1, 0, 1, 0, 1}, uint8(1), uint8(100), false)
	f.Add([]byte{5, 1, 5, 1, 5, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}, uint8(100), uint8(55), true)
	f.Add([]byte{17, 1, 0, 1, 0, 1, 0, 1}, uint8(100), uint8(100), true)
	f.Add([]byte{1, 1, 1, 1, 0, 1, 0, 1}, uint8(100), uint8(50), true)
	f.Fuzz(func(t *testing.T, fleet []byte, most, threshold uint8, percent bool) {
		const now = 60
		limit, meltsAbove := int(most), int(threshold%101)
		p := policy(func(p *Policy) {
			p.MaxRetries = new(int32(2))
			p.MaxUnhealthy = intstr.FromInt(limit)
			if percent {
				p.MaxUnhealthy = intstr.FromString(strconv.Itoa(limit) + "%")
			}
		})
		var subjects []Subject
		for n := 0; n+1 < len(fleet) && n < 200; n += 2 {
			kind, since := fleet[n], float64(fleet[n+1]%now)
			s := runningSubject(fmt.Sprintf("m%03d", n), in([]string{"", "a", "b", "c"}[kind>>2&3]))
			switch kind & 3 {
			case 1:
				silent(since)(&s)
			case 2:
				phase(v1beta1.MachineFailed)(&s)
			case 3:
				s.Node = nil
				condition(v1beta1.ConditionRegistered, "False", v1beta1.ReasonNodeGone, since)(&s)
			}
			if kind&16 != 0 {
				s.OwnerFrozen = true
			}
			if kind&32 != 0 {
				s.Retries, s.RetriesResetIn = int(since), time.Minute
			}
			if kind&192 == 192 {
				annotated(v1beta1.AnnotationRemediate, "")(&s)
			}
			subjects = append(subjects, s)
		}

		inMeltdown := DetectMeltdown(subjects, meltsAbove)
		for _, domain := range []string{"", "a", "b", "c"} {
			all, bad := 0, 0
			for _, s := range subjects {
				if s.Machine.Status.Phase != v1beta1.MachineRunning || domain != "" && s.Domain != domain {
					continue
				}
				all++
				if !ready(s.Machine, s.Node) {
					bad++
				}
			}
			if _, affected := inMeltdown[domain]; affected != (all >= 3 && float64(bad)/float64(all) > float64(meltsAbove)/100) {
				t.Fatalf("of %d nodes in %q %d are not well, with a threshold of %d %%: meltdown=%t", all, domain, bad,
					meltsAbove, affected)
			}
		}

		s := situation(now)
		s.Meltdown = inMeltdown
		j := Decide(p, subjects, s)
		unwell := 0
		for i := range subjects {
			if Evaluate(p, subjects[i].Machine, subjects[i].Node, s.Now, Clock{}).InTrouble &&
				!neverLaunched(subjects[i].Machine) {
				unwell++
			}
		}
		marks := 0
		for _, w := range j.DesiredConditions {
			if w.RequestsReplacement == w.PreventsReplacement || w.Reason.Reason == "" || w.Reason.Message == "" {
				t.Fatalf("%+v", w)
			}
			asked := has(w.Subject.Machine.Annotations, v1beta1.AnnotationRemediate)
			if w.IsForced != asked {
				t.Fatalf("asked for=%t: %+v", asked, w)
			}
			if w.PreventsReplacement || asked {
				continue
			}
			marks++
			_, all := inMeltdown[everywhere]
			_, there := inMeltdown[w.Subject.Domain]
			switch v := Evaluate(p, w.Subject.Machine, w.Subject.Node, s.Now, Clock{}); {
			case v.Health != HealthUnhealthy:
				t.Errorf("marked %s, which is %s", w.Subject.Machine.Name, v.Health)
			case all || there:
				t.Errorf("marked %s in a meltdown", w.Subject.Machine.Name)
			case w.Subject.OwnerFrozen:
				t.Errorf("marked %s, whose owner is frozen", w.Subject.Machine.Name)
			case w.Subject.Retries > 2 && w.Subject.RetriesResetIn > 0:
				t.Errorf("marked %s after %d retries", w.Subject.Machine.Name, w.Subject.Retries)
			}
		}
		allowed := limit
		if percent {
			allowed = max(limit*len(subjects)/100, min(limit, 1)) // A percentage other than 0 allows one.
		}
		if marks > 0 && unwell > allowed {
			t.Errorf("%d of %d are unwell, %s may be, and %d are marked", unwell, len(subjects), p.MaxUnhealthy.String(), marks)
		}
		if j.ExpectedCount != len(subjects) || j.HealthyCount+unwell > j.ExpectedCount ||
			j.AllowedUnhealthy < 0 || j.RecheckAfter < 0 ||
			!slices.IsSorted(j.Targets) {
			t.Errorf("%+v", j)
		}
		if j.Restriction.Reason == "" {
			for _, name := range j.Targets {
				at := slices.IndexFunc(subjects, func(s Subject) bool { return s.Machine.Name == name })
				marked := slices.ContainsFunc(j.DesiredConditions, func(w DesiredCondition) bool {
					return w.RequestsReplacement && w.Subject.Machine.Name == name
				})
				if !marked && subjects[at].Machine.Status.Phase != v1beta1.MachineFailed {
					t.Errorf("%s is unhealthy and not marked, without a reason: %+v", name, j)
				}
			}
		}
	})
}
