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

const quickMutants = 8

type hunt struct {
	// namePattern selects bugs by name. Of the selected bugs, the hunt plants one in `every`.
	namePattern string
	every       int
	workers     int
	// If isQuick is set, the hunt tests only a sample of those bugs that many runs find.
	isQuick bool
	// If kindCloud or exclusive is set, the hunt checks that only the matching feature of the simulation finds the bug.
	kindCloud, exclusive bool
	// baseline contains the number of runs without the new dimensions. These runs must not find an exclusive bug.
	baseline baseline
	// If oneProgram is set, the hunt plants all bugs in one program for the baseline. This is much faster, but one
	// bug may hide another.
	oneProgram bool
	// measure makes the hunt count how many runs find each bug.
	measure bool
	// programFolder is the folder in which the hunt stores the programs. If programFolder is not empty, the hunt does
	// not run the programs.
	programFolder string
}

func allMutants() []mutant {
	return slices.Concat(controllerMutants(), setMutants(), machineMutants(), placementMutants(),
		dimensionMutants(), powerMutants(), rebootMutants())
}

func (h hunt) chosen() ([]mutant, error) {
	if h.every < 1 {
		return nil, fmt.Errorf("--every is %d; it must be at least 1", h.every)
	}
	pattern, err := regexp.Compile(h.namePattern)
	if err != nil {
		return nil, fmt.Errorf("--match is %q: %w", h.namePattern, err)
	}
	all := allMutants()
	if h.exclusive {
		all = dimensionMutants()
	}
	all = slices.DeleteFunc(all, func(m mutant) bool {
		return !pattern.MatchString(m.name) || h.kindCloud && m.cloud == "" || h.isQuick && !m.quick
	})
	if h.isQuick {
		all = evenSample(all, quickMutants)
	}
	var out []mutant
	for i := 0; i < len(all); i += h.every {
		out = append(out, all[i])
	}
	if len(out) == 0 {
		return nil, errors.New("no bug is planted: none matches --match and the other flags")
	}
	return out, nil
}

// evenSample returns n items from all parts of a list. The result is the same at each call.
func evenSample(from []mutant, n int) (out []mutant) {
	n = min(n, len(from))
	for i := range n {
		out = append(out, from[i*len(from)/n])
	}
	return out
}

type result struct {
	text string
	// verdict is a one-word result. expected tells whether the hunt expects this result.
	verdict  string
	expected bool
}

func (h hunt) examine(ctx context.Context, b build) (result, error) {
	s := search{b.mutant, b.binary, h.workers}
	switch {
	case h.measure:
		text, err := s.measure(ctx)
		return result{text, "measured", true}, err
	case h.kindCloud:
		found, err := s.withDefaultCloud(ctx)
		if found != "" {
			return result{found, "FOUND", false}, err
		}
		return result{"", "survived", true}, err
	case h.exclusive && !h.oneProgram:
		simple := search{b.mutant, b.simpleProgram, h.workers}
		if found, err := simple.withoutNewDimensions(ctx, h.baseline); err != nil || found != "" {
			return result{found, "COMMON", false}, err
		}
	}
	found, err := s.detect(ctx)
	switch {
	case found == "":
		return result{"", "SURVIVED", false}, err
	case h.exclusive:
		return result{found, "exclusive", true}, err
	}
	return result{found, "found", true}, err
}

// tryTogether plants all bugs in one program. tryTogether returns an error if runs without the new dimensions find any
// of them.
func (h hunt) tryTogether(ctx context.Context, dir string, chosen []mutant) error {
	if len(chosen) == 0 {
		return nil
	}
	began := time.Now()
	var others []*mutant
	for i := range chosen[1:] {
		others = append(others, chosen[i+1].changes()...)
	}
	for _, m := range chosen {
		others = append(others, slices.DeleteFunc(slices.Clone(m.removeDimension), func(p *mutant) bool {
			return slices.Contains(others, p)
		})...)
	}
	binary, err := chosen[0].build(ctx, dir, "together", others...)
	if err != nil {
		return err
	}
	defer os.Remove(binary)
	found, err := search{chosen[0], binary, h.workers}.withoutNewDimensions(ctx, h.baseline)
	if err != nil {
		return err
	}
	if found != "" {
		return fmt.Errorf("%d bugs together were found without the new dimensions: %s", len(chosen), found)
	}
	fmt.Printf("%d bugs together survived %d plans and %d random runs of each group, in %.0f s\n", len(chosen),
		h.baseline.plans, h.baseline.runs, time.Since(began).Seconds())
	return nil
}

// run builds one program for each bug, and searches for violations in the runs of this program. While run searches with
// one program, it already builds the next one. Any unexpected result is an error.
func (h hunt) run(ctx context.Context) error {
	chosen, err := h.chosen()
	if err != nil {
		return err
	}
	dir := h.programFolder
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
	if h.oneProgram {
		if err := h.tryTogether(ctx, dir, chosen); err != nil {
			return err
		}
	}
	for b := range builds(ctx, dir, chosen, h.exclusive && !h.oneProgram) {
		if b.err != nil {
			return fmt.Errorf("mutant %s: %w", b.mutant.name, b.err)
		}
		if h.programFolder != "" {
			fmt.Println(b.binary)
			continue
		}
		asked := time.Now()
		a, err := h.examine(ctx, b)
		b.remove()
		if err != nil {
			return fmt.Errorf("mutant %s: %w", b.mutant.name, err)
		}
		if !a.expected {
			unexpected = append(unexpected, b.mutant.name+" "+a.verdict)
		}
		oracle := oracleOf(a.text)
		if !h.measure {
			by[oracle]++
		}
		fmt.Printf("%-9s %-42s by %-12s built in %4.1f s, run for %4.1f s: %.160s\n", a.verdict, b.mutant.name, oracle,
			b.took.Seconds(), time.Since(asked).Seconds(), a.text)
	}
	if h.programFolder != "" {
		return nil
	}
	for _, oracle := range slices.Sorted(maps.Keys(by)) {
		fmt.Printf("%-12s %d\n", oracle, by[oracle])
	}
	fmt.Printf("%d of %d planted bugs had the expected result, in %.0f s\n", len(chosen)-len(unexpected), len(chosen),
		time.Since(began).Seconds())
	if len(unexpected) > 0 {
		return fmt.Errorf("unexpected results: %s", strings.Join(unexpected, ", "))
	}
	return nil
}

var (
	// runPrefix matches the part of a violation that identifies the run. rulePrefix matches the name of the broken rule
	// at the beginning of the text.
	runPrefix  = regexp.MustCompile(`^(scenario \S+, seed \d+|prepare scenario \S+): (undisturbed: )?`)
	rulePrefix = regexp.MustCompile(`^(\w+): `)
)

// oracleOf returns the check that found a violation: the broken rule, or the condition that the run did not reach.
// Without a violation, the result is "-".
func oracleOf(violation string) string {
	text := runPrefix.ReplaceAllString(violation, "")
	for _, rule := range []struct{ text, name string }{
		{"calls of the cloud when settled", "rest"}, {"the end", "end"},
		{"settled, but", "convergence"}, {"after the last disturbance", "convergence"}, {"not settled after", "convergence"},
		{"steps from the last fault", "convergence"},
	} {
		if strings.Contains(text, rule.text) {
			return rule.name
		}
	}
	if rule := rulePrefix.FindStringSubmatch(text); rule != nil {
		return rule[1]
	}
	return "-"
}
