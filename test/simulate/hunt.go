package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// quickMutants is how many bugs CI plants.
const quickMutants = 8

// hunt is which bugs are planted, and what is asked about them.
type hunt struct {
	// match selects bugs by name, every one of so many of those.
	match string
	every int
	// workers is how many runs of a build go side by side.
	workers int
	// quick plants an even sample of those that many runs find.
	quick bool
	// kindCloud and exclusive ask whether a dimension of the world is needed for the bugs that are there for it.
	kindCloud, exclusive bool
	// former is in how many runs of other dimensions an exclusive bug must survive. together tries all of them in one
	// program there, which takes a fraction of the time; a bug that hides another one would not be noticed.
	former   former
	together bool
	// measure counts the runs that find each.
	measure bool
	// keep is a folder where the programs stay that nobody has asked yet, "" for none.
	keep string
}

// allMutants are the bugs that can be planted.
func allMutants() []mutant {
	return slices.Concat(controllerMutants(), setMutants(), machineMutants(), dimensionMutants())
}

// chosen returns the bugs that are planted.
func (h hunt) chosen() ([]mutant, error) {
	if h.every < 1 {
		return nil, fmt.Errorf("--every is %d; it must be at least 1", h.every)
	}
	pattern, err := regexp.Compile(h.match)
	if err != nil {
		return nil, fmt.Errorf("--match is %q: %w", h.match, err)
	}
	all := allMutants()
	if h.exclusive {
		all = dimensionMutants()
	}
	all = slices.DeleteFunc(all, func(m mutant) bool {
		return !pattern.MatchString(m.name) || h.kindCloud && m.cloud == "" || h.quick && !m.quick
	})
	if h.quick {
		all = evenly(all, quickMutants)
	}
	var out []mutant
	for i := 0; i < len(all); i += h.every {
		out = append(out, all[i])
	}
	if len(out) == 0 {
		return nil, errors.New("no bug is planted: none has such a name, or what the flags ask for")
	}
	return out, nil
}

// evenly returns n of some bugs, or all if there are fewer: always the same, from each part of the list.
func evenly(from []mutant, n int) (out []mutant) {
	n = min(n, len(from))
	for i := range n {
		out = append(out, from[i*len(from)/n])
	}
	return out
}

// answer is what is said about a bug.
type answer struct {
	// text is the violation that gave it away, or how many did.
	text string
	// as is one word, expected whether it is the right one.
	as       string
	expected bool
}

// ask asks about a bug what the hunt is for.
func (h hunt) ask(ctx context.Context, b build) (answer, error) {
	s := search{b.mutant, b.binary, h.workers}
	switch {
	case h.measure:
		text, err := s.measure(ctx)
		return answer{text, "measured", true}, err
	case h.kindCloud:
		found, err := s.withDefaultCloud(ctx)
		if found != "" {
			return answer{found, "FOUND", false}, err
		}
		return answer{"", "survived", true}, err
	case h.exclusive && !h.together:
		plain := search{b.mutant, b.plain, h.workers}
		if found, err := plain.inFormerDimensions(ctx, h.former); err != nil || found != "" {
			return answer{found, "COMMON", false}, err
		}
	}
	found, err := s.detect(ctx)
	switch {
	case found == "":
		return answer{"", "SURVIVED", false}, err
	case h.exclusive:
		return answer{found, "exclusive", true}, err
	}
	return answer{found, "found", true}, err
}

// tryTogether plants all bugs in one program and fails if the other dimensions find any.
func (h hunt) tryTogether(ctx context.Context, dir string, chosen []mutant) error {
	if len(chosen) == 0 {
		return nil
	}
	began := time.Now()
	var beside []*mutant
	for i := range chosen[1:] {
		beside = append(beside, chosen[i+1].changes()...)
	}
	for _, m := range chosen {
		beside = append(beside, slices.DeleteFunc(slices.Clone(m.plain), func(p *mutant) bool {
			return slices.Contains(beside, p)
		})...)
	}
	binary, err := chosen[0].build(ctx, dir, "together", beside...)
	if err != nil {
		return err
	}
	defer os.Remove(binary)
	found, err := search{chosen[0], binary, h.workers}.inFormerDimensions(ctx, h.former)
	if err != nil {
		return err
	}
	if found != "" {
		return fmt.Errorf("%d bugs together are found without the new dimensions: %s", len(chosen), found)
	}
	fmt.Printf("%d bugs together survived %d plans and %d random runs of each group, in %.0f s\n", len(chosen),
		h.former.plans, h.former.runs, time.Since(began).Seconds())
	return nil
}

// run plants each bug in a build of this command of its own and lets that look for violations, while the next one is
// built. It fails if the answer about one of them is not the expected one.
func (h hunt) run(ctx context.Context) error {
	chosen, err := h.chosen()
	if err != nil {
		return err
	}
	dir := h.keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "machinist-mutants-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	var unexpected []string
	by := map[string]int{}
	if h.together {
		if err := h.tryTogether(ctx, dir, chosen); err != nil {
			return err
		}
	}
	for b := range builds(ctx, dir, chosen, h.exclusive && !h.together) {
		if b.err != nil {
			return fmt.Errorf("mutant %s: %w", b.mutant.name, b.err)
		}
		if h.keep != "" {
			fmt.Println(b.binary)
			continue
		}
		asked := time.Now()
		a, err := h.ask(ctx, b)
		b.remove()
		if err != nil {
			return fmt.Errorf("mutant %s: %w", b.mutant.name, err)
		}
		if !a.expected {
			unexpected = append(unexpected, b.mutant.name+" "+a.as)
		}
		oracle := oracleOf(a.text)
		if !h.measure {
			by[oracle]++
		}
		fmt.Printf("%-9s %-42s by %-12s built in %4.1f s, asked for %4.1f s: %.160s\n", a.as, b.mutant.name, oracle,
			b.took.Seconds(), time.Since(asked).Seconds(), a.text)
	}
	if h.keep != "" {
		return nil
	}
	for _, oracle := range slices.Sorted(maps.Keys(by)) {
		fmt.Printf("%-12s %d\n", oracle, by[oracle])
	}
	fmt.Printf("%d of %d planted bugs are as expected, in %.0f s\n", len(chosen)-len(unexpected), len(chosen),
		time.Since(began).Seconds())
	if len(unexpected) > 0 {
		return fmt.Errorf("not as expected: %s", strings.Join(unexpected, ", "))
	}
	return nil
}

var (
	// seedOf is what comes before the text of a violation, ruleOf the word that it begins with where it breaks a rule.
	seedOf = regexp.MustCompile(`^(scenario \S+, seed \d+|prepare scenario \S+): (undisturbed: )?`)
	ruleOf = regexp.MustCompile(`^(\w+): `)
)

// oracleOf names the judge of a violation: the rule that it breaks, or what the run lacks; "-" for no violation.
func oracleOf(violation string) string {
	text := seedOf.ReplaceAllString(violation, "")
	for _, rule := range []struct{ text, name string }{
		{"calls of the cloud when settled", "rest"}, {"the end", "end"},
		{"settled, but", "convergence"}, {"after the last disturbance", "convergence"}, {"not settled after", "convergence"},
		{"steps from the last fault", "convergence"},
	} {
		if strings.Contains(text, rule.text) {
			return rule.name
		}
	}
	if rule := ruleOf.FindStringSubmatch(text); rule != nil {
		return rule[1]
	}
	return "-"
}
