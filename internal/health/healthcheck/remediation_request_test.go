package healthcheck

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// Rule: remediation-annotations.
func TestMergeOfConditions(t *testing.T) {
	s := runningSubject("m")
	mark := DesiredCondition{Subject: s, RequestsReplacement: true}
	hold := DesiredCondition{Subject: s, PreventsReplacement: true}
	forced := DesiredCondition{Subject: s, RequestsReplacement: true, IsForced: true}
	for name, test := range map[string]struct {
		first, second DesiredCondition
		wantSecond    bool
	}{
		"a hold replaces a mark":                 {first: mark, second: hold, wantSecond: true},
		"a mark does not replace a hold":         {first: hold, second: mark},
		"a request replaces a hold":              {first: hold, second: forced, wantSecond: true},
		"a hold does not replace a request":      {first: forced, second: hold},
		"a request replaces a mark":              {first: mark, second: forced, wantSecond: true},
		"a mark does not replace a request":      {first: forced, second: mark},
		"the first of two marks stays":           {first: mark, second: mark},
		"the first of two holds stays":           {first: hold, second: hold},
		"the first of two user's requests stays": {first: forced, second: forced},
	} {
		all := map[types.UID]desiredByPolicy{}
		merge(all, policy(func(p *Policy) { p.Name = "first" }), []DesiredCondition{test.first})
		merge(all, policy(func(p *Policy) { p.Name = "second" }), []DesiredCondition{test.second})
		want := "first"
		if test.wantSecond {
			want = "second"
		}
		if got := all[s.Machine.UID].policy.Name; got != want || len(all) != 1 {
			t.Errorf("%s: the condition of the %s policy was chosen", name, got)
		}
	}
}
