package simulation

import (
	"slices"
	"testing"
)

// A run that goes on from a copy made on its way is the run that it was copied from: to the last choice, and to the
// end.
func TestARunGoesOnFromEachOfItsPoints(t *testing.T) {
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
				t.Fatal("there are no points")
			}
			for i, from := range r.points {
				if i != len(r.points)/3 && i != len(r.points)-1 {
					continue
				}
				w, err := from.world.snapshot()
				if err != nil {
					t.Fatal(err)
				}
				// The points of a run ask what goes wrong as the run itself does.
				w.faults = &listing{}
				got := w.finish()
				if got.Err != nil || got.Path != r.result.Path || got.Steps != r.result.Steps || got.Effects != r.result.Effects {
					t.Errorf("from effect %d: %d steps, %d effects, path %x, error %v; the run has %d, %d, %x", from.effect, got.Steps,
						got.Effects, got.Path, got.Err, r.result.Steps, r.result.Effects, r.result.Path)
				}
				if difference := got.End.difference(r.result.End); difference != "" {
					t.Errorf("from effect %d the end is another one:\n%s", from.effect, difference)
				}
			}
		})
	}
}

// A run can be copied while a leader is yet to be elected.
func TestARunIsCopiedDuringAnElection(t *testing.T) {
	t.Parallel()
	i := slices.IndexFunc(Scenarios(), func(s Scenario) bool { return s.Name == "control-outage" })
	p, err := Scenarios()[i].Prepare(Scheme())
	if err != nil {
		t.Fatal(err)
	}
	if r := p.record(837119936104).with(At{1, TwoLeaders}, true); r.result.Err != nil {
		t.Error(r.result.Err)
	}
}

// A plan runs the same way from a copy as from the beginning, also the second fault of a pair.
func TestAPlanIsARun(t *testing.T) {
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
				first := r.with(at, true)
				whole := p.Run(1, first.plan, nil)
				if first.result.Path != whole.Path || first.result.Steps != whole.Steps {
					t.Errorf("plan %s: path %x after %d steps, from the beginning %x after %d", first.plan, first.result.Path,
						first.result.Steps, whole.Path, whole.Steps)
				}
				seconds := first.faults()
				if len(seconds) == 0 {
					continue
				}
				second := first.with(seconds[len(seconds)/2], false)
				if whole := p.Run(1, second.plan, nil); second.result.Path != whole.Path {
					t.Errorf("plan %s: path %x, from the beginning %x", second.plan, second.result.Path, whole.Path)
				}
			}
		})
	}
}

// A sample of plans is even: each fault has its share, and no plan comes twice.
func TestASampleIsEven(t *testing.T) {
	t.Parallel()
	p, err := Scenarios()[0].Prepare(Scheme())
	if err != nil {
		t.Fatal(err)
	}
	r := p.record(1)
	all, seen, of := map[Fault]int{}, map[At]bool{}, map[Fault]int{}
	for _, at := range r.faults() {
		all[at.Fault]++
	}
	sample := r.sample(share{0.25, 0.25})
	for _, at := range sample {
		if seen[at] {
			t.Errorf("%s comes twice", at)
		}
		seen[at] = true
		of[at.Fault]++
	}
	for f, n := range all {
		if got, want := of[f], float64(n)/4; float64(got) < want-1 || float64(got) > want+1 {
			t.Errorf("%d of %d plans with fault %s are in a sample of a quarter", got, n, f)
		}
	}
	if n := len(r.sample(share{1, 1})); n != len(r.faults()) {
		t.Errorf("the whole sample has %d of %d plans", n, len(r.faults()))
	}
	indexes := spread(1000, 30, 12345)
	slices.Sort(indexes)
	if len(slices.Compact(indexes)) != 30 {
		t.Errorf("30 of 1000 indexes are %v", indexes)
	}
}

// A plan is read as it is written.
func TestAPlanIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "12:lost", "3:crash-before,40:freeze-Machine"} {
		plan, err := ParsePlan(text)
		if err != nil || plan.String() != text {
			t.Errorf("%q is read as %q (%v)", text, plan, err)
		}
	}
	for _, text := range []string{"lost", "x:lost", "5:lost,5:lost", "7:lost,3:lost"} {
		if plan, err := ParsePlan(text); err == nil {
			t.Errorf("%q is read as %q", text, plan)
		}
	}
}

// A sweep runs as many plans as it may, single faults first, and counts what it covered.
func TestASweepOfPlansKeepsItsBudget(t *testing.T) {
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
		t.Errorf("a sweep of 80 plans had %d of %d single faults and %d pairs, in %d scenarios", n, sample.PossibleSingles,
			sample.Pairs, len(sample.Coverage))
	}
	p, err := few[1].Prepare(Scheme())
	if err != nil {
		t.Fatal(err)
	}
	s := &sweeper{Plans: Plans{Workers: 2}, report: PlanReport{Coverage: Coverage{}}}
	s.sweep(variant{scenario: p, seed: 1}, share{0.02, 0.02}, 2)
	if s.report.Pairs != 2*s.report.Singles || s.report.Pairs == 0 {
		t.Errorf("%d pairs begin with %d single faults; two with each were asked for", s.report.Pairs, s.report.Singles)
	}
	for _, f := range s.report.Failures {
		t.Errorf("scenario %s, %s", f.Scenario, f)
	}
}

// A budget that is enough for all faults but those of caches leaves out none of these, and an even part of those.
func TestFaultsOfCachesAreThinnedFirst(t *testing.T) {
	for _, test := range []struct {
		budget, all, ofCaches int
		want                  share
	}{
		{0, 100, 40, share{1, 1}}, {100, 100, 40, share{1, 1}}, {120, 100, 40, share{1, 1}},
		{70, 100, 40, share{0.25, 1}}, {60, 100, 40, share{0.6, 0.6}}, {10, 100, 40, share{0.1, 0.1}},
	} {
		if got := shares(test.budget, test.all, test.ofCaches); got != test.want {
			t.Errorf("with a budget of %d for %d faults, %d of caches, the shares are %v, not %v", test.budget, test.all,
				test.ofCaches, got, test.want)
		}
	}
}

// A plan that names its effects is the plan of their numbers, each in the run that the faults before have disturbed.
func TestAPlanNamesEffects(t *testing.T) {
	t.Parallel()
	i := slices.IndexFunc(Scenarios(), func(s Scenario) bool { return s.Name == "scale-up" })
	p, err := Scenarios()[i].Prepare(Scheme())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := p.Plan(1, "manager/machineset create Machine@2:lost,create instance:throttled")
	if err != nil || len(plan) != 2 {
		t.Fatalf("the plan is %q (%v)", plan, err)
	}
	var creates []int
	for _, e := range p.record(1).effects {
		if e.Verb == "create" && e.Kind == "Machine" {
			creates = append(creates, e.N)
		}
	}
	if len(creates) != 2 || plan[0] != (At{creates[1], Lost}) {
		t.Errorf("the first fault is %s; the creations are effects %v", plan[0], creates)
	}
	again := p.record(1).with(plan[0], true)
	if e, ok := again.find("create instance"); !ok || plan[1] != (At{e.N, Throttled}) || e.N < plan[0].Effect {
		t.Errorf("the second fault is %s; the first creation of an instance after %s is %s", plan[1], plan[0], e)
	}
	numbered, err := p.Plan(1, plan.String())
	if err != nil || numbered.String() != plan.String() {
		t.Errorf("%q is read as %q (%v)", plan, numbered, err)
	}
	for _, text := range []string{"create Machine", "create Machine@9:lost", "5:lost,5:lost", "create Nothing:lost"} {
		if plan, err := p.Plan(1, text); err == nil {
			t.Errorf("%q is read as %q", text, plan)
		}
	}
}
