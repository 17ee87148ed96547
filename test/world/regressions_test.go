package world

import "testing"

// regressions are plans that once failed. Their effects are numbered as the code was then, so that a plan may come to mean
// something else; it must not fail all the same.
var regressions = []struct {
	scenario string
	seed     uint64
	plan     string
	// what went wrong.
	what string
}{
	{"create-with-token", 1, "50:denied", "a bootstrap token was left after its deletion had been forbidden once"},
	{"drain-never-allowed", 1, "1:conflict", "a node that could not be cordoned, since others wrote to it, was not drained either"},
	{"drain-for-update", 1, "31:time-jumps", "a drain counted from before a call of the cloud that took long"},
}

// What failed once does not fail again.
func TestPlansThatOnceFailed(t *testing.T) {
	t.Parallel()
	byName := map[string]Scenario{}
	for _, s := range Scenarios() {
		byName[s.Name] = s
	}
	for _, r := range regressions {
		t.Run(r.scenario+" "+r.plan, func(t *testing.T) {
			t.Parallel()
			p, err := byName[r.scenario].Prepare(Scheme())
			if err != nil {
				t.Fatal(err)
			}
			plan, err := ParsePlan(r.plan)
			if err != nil {
				t.Fatal(err)
			}
			if result := p.Run(r.seed, plan, nil); result.Err != nil {
				t.Errorf("%s: %v", r.what, result.Err)
			}
		})
	}
}
