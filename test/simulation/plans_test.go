package simulation

import (
	"slices"
	"testing"
)

// If a world is copied during a run, and the run continues in the copy, it makes the same choices and has the same
// result.
func TestRunContinuesFromEachCopy(t *testing.T) {
	t.Parallel()
	for _, s := range onePerGroup() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			p, err := s.Prepare(Scheme())
			if err != nil {
				t.Fatal(err)
			}
			r := p.record(1)
			if r.result.Err != nil {
				t.Fatal(r.result.Err)
			}
			if len(r.points) == 0 {
				t.Fatal("the run has no copies")
			}
			for i, from := range r.points {
				if i != len(r.points)/3 && i != len(r.points)-1 {
					continue
				}
				w, err := from.world.snapshot()
				if err != nil {
					t.Fatal(err)
				}
				// In the recorded run, the world asked its plan for a fault at each effect. After copying, the world
				// must ask at the same effects.
				w.faults = &listing{}
				got := w.finish()
				if got.Err != nil || got.Path != r.result.Path || got.Steps != r.result.Steps || got.Effects != r.result.Effects {
					t.Errorf("from effect %d: got %d steps, %d effects, path %x, error %v, want %d, %d, %x", from.effect, got.Steps,
						got.Effects, got.Path, got.Err, r.result.Steps, r.result.Effects, r.result.Path)
				}
				if difference := got.FinalState.difference(r.result.FinalState); difference != "" {
					t.Errorf("from effect %d: the end differs:\n%s", from.effect, difference)
				}
			}
		})
	}
}

// A run can be copied while there is no leader.
func TestRunCanBeCopiedDuringElection(t *testing.T) {
	t.Parallel()
	i := slices.IndexFunc(Scenarios(), func(s Scenario) bool { return s.Name == "control-outage" })
	p, err := Scenarios()[i].Prepare(Scheme())
	if err != nil {
		t.Fatal(err)
	}
	if r := p.record(837119936104).withFault(FaultAt{1, FaultTwoLeaders}, true); r.result.Err != nil {
		t.Error(r.result.Err)
	}
}

// A plan that starts from a copied world must run in the same way as a plan that starts from the beginning. The test
// also uses plans with two faults.
func TestPlanRunsTheSameFromCopy(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"create", "scale-down"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(Scenarios(), func(s Scenario) bool { return s.Name == name })
			p, err := Scenarios()[i].Prepare(Scheme())
			if err != nil {
				t.Fatal(err)
			}
			r := p.record(1)
			for i, at := range r.faults() {
				if i%291 != 0 {
					continue
				}
				first := r.withFault(at, true)
				full := p.Run(1, first.plan, nil)
				if first.result.Path != full.Path || first.result.Steps != full.Steps {
					t.Errorf("plan %s: got path %x after %d steps, want %x after %d as from the beginning", first.plan,
						first.result.Path, first.result.Steps, full.Path, full.Steps)
				}
				seconds := first.faults()
				if len(seconds) == 0 {
					continue
				}
				second := first.withFault(seconds[len(seconds)/2], false)
				if full := p.Run(1, second.plan, nil); second.result.Path != full.Path {
					t.Errorf("plan %s: got path %x, want %x as from the beginning", second.plan, second.result.Path, full.Path)
				}
			}
		})
	}
}

// A sample must contain the same share of each fault. No plan may occur twice in a sample.
func TestSampleIsEven(t *testing.T) {
	t.Parallel()
	p, err := Scenarios()[0].Prepare(Scheme())
	if err != nil {
		t.Fatal(err)
	}
	r := p.record(1)
	all, seen, of := map[Fault]int{}, map[FaultAt]bool{}, map[Fault]int{}
	for _, at := range r.faults() {
		all[at.Fault]++
	}
	sample := r.sample(share{0.25, 0.25})
	for _, at := range sample {
		if seen[at] {
			t.Errorf("the sample contains %s twice", at)
		}
		seen[at] = true
		of[at.Fault]++
	}
	for f, n := range all {
		if got, want := of[f], float64(n)/4; float64(got) < want-1 || float64(got) > want+1 {
			t.Errorf("got %d of %d plans with fault %s in a sample of a quarter", got, n, f)
		}
	}
	if n := len(r.sample(share{1, 1})); n != len(r.faults()) {
		t.Errorf("got %d of %d plans in the full sample", n, len(r.faults()))
	}
	indexes := spreadIndexes(1000, 30, 12345)
	slices.Sort(indexes)
	if len(slices.Compact(indexes)) != 30 {
		t.Errorf("got indexes %v, want 30 different ones of 1000", indexes)
	}
}

func TestParsePlanParsesStringOfPlan(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "12:lost", "3:crash-before,40:freeze-Machine"} {
		plan, err := ParsePlan(text)
		if err != nil || plan.String() != text {
			t.Errorf("%q: got plan %q, error %v", text, plan, err)
		}
	}
	for _, text := range []string{"lost", "x:lost", "5:lost,5:lost", "7:lost,3:lost"} {
		if plan, err := ParsePlan(text); err == nil {
			t.Errorf("%q: got plan %q, want an error", text, plan)
		}
	}
}

// A sweep runs as many plans as its budget allows, and starts with the plans that have one fault. The report counts the
// effects at which each fault was tried.
func TestSweepOfPlansKeepsBudget(t *testing.T) {
	t.Parallel()
	few := slices.DeleteFunc(Scenarios(), func(s Scenario) bool {
		return s.Name != "create-with-token" && s.Name != "delete"
	})
	sample, err := Plans{Scenarios: few, Budget: 80, Seed: 1, Workers: 2}.Run(Scheme())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range sample.Failures {
		t.Errorf("scenario %s, %s", f.Scenario, f)
	}
	if n := sample.Singles; n < 60 || n > 100 || sample.Pairs != 0 || len(sample.Coverage) != 2 {
		t.Errorf("got %d of %d single faults and %d pairs in %d scenarios, want about 80 single faults in 2", n,
			sample.PossibleSingles, sample.Pairs, len(sample.Coverage))
	}
	p, err := few[1].Prepare(Scheme())
	if err != nil {
		t.Fatal(err)
	}
	s := &sweeper{Plans: Plans{Workers: 2}, report: newPlanReport()}
	s.sweep(variant{scenario: p, seed: 1}, share{0.02, 0.02}, 2)
	// For a fault at the end of a run there are fewer pairs, because no second fault can follow.
	if most := 2 * s.report.Singles; s.report.Pairs > most || s.report.Pairs < most-3 || most == 0 {
		t.Errorf("got %d pairs for %d single faults, want two for nearly every fault", s.report.Pairs, s.report.Singles)
	}
	for _, f := range s.report.Failures {
		t.Errorf("scenario %s, %s", f.Scenario, f)
	}
}

// If the budget suffices for all other faults, only the faults of caches are reduced.
func TestSharesReduceCacheFaultsFirst(t *testing.T) {
	for _, test := range []struct {
		budget, all, ofCaches int
		want                  share
	}{
		{0, 100, 40, share{1, 1}}, {100, 100, 40, share{1, 1}}, {120, 100, 40, share{1, 1}},
		{70, 100, 40, share{0.25, 1}}, {60, 100, 40, share{0.6, 0.6}}, {10, 100, 40, share{0.1, 0.1}},
	} {
		if got := shares(test.budget, test.all, test.ofCaches); got != test.want {
			t.Errorf("budget %d for %d faults, %d of caches: got shares %v, want %v", test.budget, test.all,
				test.ofCaches, got, test.want)
		}
	}
}

// Parsing a plan with names of effects must return the plan with the numbers of these effects. To find the number of an
// effect, the parser runs the scenario with all earlier faults.
func TestPlanNamesEffects(t *testing.T) {
	t.Parallel()
	i := slices.IndexFunc(Scenarios(), func(s Scenario) bool { return s.Name == "scale-up" })
	p, err := Scenarios()[i].Prepare(Scheme())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := p.Plan(1, "manager/machineset create Machine@2:lost,create instance:throttled")
	if err != nil || len(plan) != 2 {
		t.Fatalf("got plan %q, error %v, want two faults", plan, err)
	}
	var creates []int
	for _, e := range p.record(1).effects {
		if e.Verb == "create" && e.Kind == "Machine" {
			creates = append(creates, e.N)
		}
	}
	if len(creates) != 2 || plan[0] != (FaultAt{creates[1], FaultLost}) {
		t.Errorf("got first fault %s, want it at the second of the creations %v", plan[0], creates)
	}
	again := p.record(1).withFault(plan[0], true)
	if e, ok := again.find("create instance"); !ok || plan[1] != (FaultAt{e.N, FaultThrottled}) || e.N < plan[0].Effect {
		t.Errorf("got second fault %s, want it at the first creation of an instance after %s, which is %s", plan[1],
			plan[0], e)
	}
	numbered, err := p.Plan(1, plan.String())
	if err != nil || numbered.String() != plan.String() {
		t.Errorf("%q: got plan %q, error %v", plan, numbered, err)
	}
	for _, text := range []string{"create Machine", "create Machine@9:lost", "5:lost,5:lost", "create Nothing:lost"} {
		if plan, err := p.Plan(1, text); err == nil {
			t.Errorf("%q: got plan %q, want an error", text, plan)
		}
	}
}
