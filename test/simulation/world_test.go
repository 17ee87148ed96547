package simulation

import (
	"slices"
	"strings"
	"testing"
)

// onePerGroup returns the first scenario of each group, for tests of the simulator itself. The scenarios of a group
// have the same actors, and bugs of the simulator are usually in the actors.
func onePerGroup() []Scenario {
	seen := map[Group]bool{}
	return slices.DeleteFunc(Scenarios(), func(s Scenario) bool {
		later := seen[s.Group]
		seen[s.Group] = true
		return later
	})
}

// The seed determines all choices of a run.
func TestSeedDeterminesRun(t *testing.T) {
	t.Parallel()
	for _, s := range onePerGroup() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			p, err := s.Prepare(Scheme())
			if err != nil {
				t.Fatal(err)
			}
			for seed := range uint64(2) {
				first, second := storyOf(p, seed), storyOf(p, seed)
				if first != second {
					t.Errorf("two runs of seed %d differ:\n%s", seed, difference(first, second))
				}
			}
		})
	}
}

func storyOf(p *Prepared, seed uint64) string {
	var story strings.Builder
	p.Run(seed, nil, func(line string) { story.WriteString(line + "\n") })
	return story.String()
}

func difference(a, b string) string {
	first, second := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range first {
		if i >= len(second) || first[i] != second[i] {
			return strings.Join(first[max(0, i-5):min(i+2, len(first))], "\n") + "\n--- or ---\n" +
				strings.Join(second[min(i, len(second)):min(i+2, len(second))], "\n")
		}
	}
	return "the second story is longer"
}

// A clone must contain the complete state of a world, including the memory of the processes. So the clone and the
// original must continue in exactly the same way.
func TestCloneContinuesLikeOrigin(t *testing.T) {
	t.Parallel()
	for _, s := range onePerGroup() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			for _, cut := range []int{9, 120} {
				p, err := s.Prepare(Scheme())
				if err != nil {
					t.Fatal(err)
				}
				w, err := p.base.Clone(7)
				if err != nil {
					t.Fatal(err)
				}
				w.script = p.Script(w.random)
				for range cut {
					if _, err := w.step(false); err != nil {
						t.Fatal(err)
					}
				}
				clone, err := w.Clone(11)
				if err != nil {
					t.Fatal(err)
				}
				clone.script = append(clone.script, w.script...)
				again, err := w.Clone(11)
				if err != nil {
					t.Fatal(err)
				}
				again.script = append(again.script, w.script...)
				w.random, w.path, w.steps, w.effects = again.random, 0, 0, 0
				w.disturbed, w.lastAction = w.clock.at, w.clock.at // Clone resets these fields too.
				var origin, copied strings.Builder
				w.story = func(line string) { origin.WriteString(line + "\n") }
				clone.story = func(line string) { copied.WriteString(line + "\n") }
				errOrigin, errClone := w.Run(SettledDifference), clone.Run(SettledDifference)
				if errOrigin != nil || errClone != nil || origin.String() != copied.String() {
					t.Fatalf("cloned after %d steps: got errors %v and %v, and this difference:\n%s", cut, errOrigin, errClone,
						difference(origin.String(), copied.String()))
				}
			}
		})
	}
}

// This test runs each scenario once. The command simulate runs many more seeds.
func TestRunsKeepTheRules(t *testing.T) {
	t.Parallel()
	report, err := Sweep{Scenarios: Scenarios(), Runs: len(Scenarios()), Seed: 1, Workers: 2}.Run(Scheme())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Failures {
		t.Errorf("scenario %s, %s", f.Scenario, f)
	}
	if report.Crashes < 10 {
		t.Errorf("got only %d crashes in %d runs, want at least 10", report.Crashes, report.Runs)
	}
}
