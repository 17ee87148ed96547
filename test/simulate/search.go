package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"machinist.dev/machinist/test/simulation"
)

// These are the bounds of a search. A bug that needs more is found only by luck.
const (
	// mutantRuns is the number of random runs in which a mutant is searched. mutantPlans is the number of plans that are
	// tried before, for mutants that plans find.
	mutantRuns  = 20_000
	mutantPlans = 4_000
	// planSeeds is the number of seeds, from that of the mutant on, with which the mutant's plan is tried.
	planSeeds = 8
	// mutantFaults is how many faults are tried for each scenario under the semantics of the cloud that reveal a mutant.
	mutantFaults = 60
	// mutantCorruptions is how many corruptions of a scenario are tried.
	mutantCorruptions = 4_000
	// measuredRuns is the number of plans, random runs or corruptions that measure how many find a bug.
	measuredRuns = 400
)

// search looks for violations with a build that contains a bug.
type search struct {
	mutant
	binary  string
	workers int
}

// detect returns the violation that revealed the mutant, or "" if there was none.
func (s search) detect(ctx context.Context) (string, error) {
	if s.handovers {
		return s.first(ctx, []string{"handovers"})
	}
	seed := fmt.Sprint(max(s.last, 1))
	if s.cloud != "" {
		return s.first(ctx, []string{"--seed", seed, "--cloud", s.cloud, "--faults", fmt.Sprint(mutantFaults)})
	}
	var attempts [][]string
	switch {
	case s.corruption != "":
		return s.first(ctx, []string{"--seed", seed, "--corrupt", s.corruption},
			[]string{"--seed", seed, "--plans", "0", "--runs", "0", "--corruptions", fmt.Sprint(mutantCorruptions)})
	case s.plan != "":
		for n := range planSeeds {
			attempts = append(attempts, []string{"--seed", fmt.Sprint(max(s.last, 1) + n), "--plan", s.plan})
		}
	case s.last > 0:
		attempts = append(attempts, []string{"--seed", seed, "--runs", "1", "--plans", "0", "--corruptions", "0"})
	}
	if s.planned || s.plan != "" {
		attempts = append(attempts, []string{"--runs", "0", "--plans", fmt.Sprint(mutantPlans), "--corruptions", "0"})
	}
	return s.first(ctx, append(attempts,
		[]string{"--runs", fmt.Sprint(mutantRuns), "--plans", "0", "--corruptions", "0"})...)
}

// first returns what the first successful attempt finds.
func (s search) first(ctx context.Context, attempts ...[]string) (string, error) {
	for _, arguments := range attempts {
		found, err := s.violations(ctx, s.finds, s.inScenario(arguments)...)
		if err != nil || len(found) > 0 {
			return strings.Join(found, "; "), err
		}
	}
	return "", nil
}

// inScenario adds the mutant's scenario to the arguments.
func (s search) inScenario(arguments []string) []string {
	if s.scenario != "" {
		arguments = append(slices.Clone(arguments), "--scenario", s.scenario)
	}
	return arguments
}

// withDefaultCloud returns what the default sweep finds without semantics of the cloud.
func (s search) withDefaultCloud(ctx context.Context) (string, error) {
	found, err := s.violations(ctx, ".", "--cloud", "none")
	return strings.Join(found, "; "), err
}

// former is how many plans, and random runs of each group, an exclusive bug must survive without the new dimensions.
type former struct{ plans, runs int }

// withoutNewDimensions returns what plans and random runs find in all scenarios except those of incidents, in a cloud
// without semantics and without corruptions.
func (s search) withoutNewDimensions(ctx context.Context, amount former) (string, error) {
	var groups []string
	for _, g := range simulation.Groups() {
		if g != simulation.Incidents {
			groups = append(groups, string(g))
		}
	}
	found, err := s.violations(ctx, ".", "--cloud", "none", "--corruptions", "0", "--plans", fmt.Sprint(amount.plans),
		"--runs", fmt.Sprint(amount.runs), "--group", strings.Join(groups, ","))
	return strings.Join(found, "; "), err
}

// measure returns how many runs of each kind find the mutant.
func (s search) measure(ctx context.Context) (string, error) {
	n := fmt.Sprint(measuredRuns)
	kinds := []struct {
		name      string
		arguments []string
	}{
		{"plans", []string{"--plans", n, "--runs", "0", "--corruptions", "0"}},
		{"random runs", []string{"--plans", "0", "--runs", n, "--corruptions", "0"}},
	}
	switch {
	case s.cloud != "":
		kinds = kinds[:1]
		kinds[0].name, kinds[0].arguments = "runs with "+s.cloud, []string{"--cloud", s.cloud, "--faults", "3"}
	case s.corruption != "":
		kinds = kinds[:1]
		kinds[0].name, kinds[0].arguments = "corruptions", []string{"--seed", fmt.Sprint(max(s.last, 1)), "--plans", "0",
			"--runs", "0", "--corruptions", n}
	}
	var out []string
	for _, kind := range kinds {
		found, err := s.violations(ctx, "^$", s.inScenario(kind.arguments)...)
		if err != nil {
			return "", err
		}
		n := 0
		for _, text := range found {
			if regexp.MustCompile(s.finds).MatchString(text) {
				n++
			}
		}
		out = append(out, fmt.Sprintf("%3d by %s", n, kind.name))
	}
	return strings.Join(out, ", "), nil
}

// violations runs the build until a violation matches, and returns the violations that match, or all if until is "^$".
func (s search) violations(ctx context.Context, until string, arguments ...string) (found []string, err error) {
	arguments = append(slices.Clone(arguments), "--until", until, "--workers", fmt.Sprint(s.workers))
	if !s.handovers && !slices.Contains(arguments, "--cloud") {
		arguments = append(arguments, "--cloud", "none")
	}
	out, err := exec.CommandContext(ctx, s.binary, arguments...).CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		return nil, err
	}
	wanted := regexp.MustCompile(until)
	for line := range strings.Lines(string(out)) {
		text, failed := strings.CutPrefix(line, "FAILED ")
		if !failed { // The fleet with which a scenario begins did not come up.
			text, failed = strings.CutPrefix(line, "Error: prepare ")
			text = "prepare " + text
		}
		if failed && (until == "^$" || wanted.MatchString(text)) {
			found = append(found, strings.TrimSpace(text))
		}
	}
	return found, nil
}
