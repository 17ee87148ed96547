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

// These constants limit a search. A bug that needs a longer search is found only by chance.
const (
	// mutantRuns is the number of random runs that search for a mutant. If the field planned of a mutant is set, the
	// search first tries mutantPlans plans.
	mutantRuns  = 20_000
	mutantPlans = 4_000
	// planSeeds is the number of consecutive seeds for the plan of a mutant, beginning with the seed of the mutant.
	planSeeds         = 8
	mutantFaults      = 60
	mutantCorruptions = 4_000
	measuredRuns      = 400
)

type search struct {
	mutant
	binary  string
	workers int
}

func (s search) detect(ctx context.Context) (string, error) {
	if s.handovers {
		return s.firstViolation(ctx, []string{"handovers"})
	}
	seed := fmt.Sprint(max(s.seed, 1))
	if s.cloud != "" {
		return s.firstViolation(ctx, []string{"--seed", seed, "--cloud", s.cloud, "--faults", fmt.Sprint(mutantFaults)})
	}
	var attempts [][]string
	switch {
	case s.corruption != "":
		return s.firstViolation(ctx, []string{"--seed", seed, "--corrupt", s.corruption},
			[]string{"--seed", seed, "--plans", "0", "--runs", "0", "--corruptions", fmt.Sprint(mutantCorruptions)})
	case s.plan != "":
		for n := range planSeeds {
			attempts = append(attempts, []string{"--seed", fmt.Sprint(max(s.seed, 1) + n), "--plan", s.plan})
		}
	case s.seed > 0:
		attempts = append(attempts, []string{"--seed", seed, "--runs", "1", "--plans", "0", "--corruptions", "0"})
	}
	if s.planned || s.plan != "" {
		attempts = append(attempts, []string{"--runs", "0", "--plans", fmt.Sprint(mutantPlans), "--corruptions", "0"})
	}
	return s.firstViolation(ctx, append(attempts,
		[]string{"--runs", fmt.Sprint(mutantRuns), "--plans", "0", "--corruptions", "0"})...)
}

func (s search) firstViolation(ctx context.Context, attempts ...[]string) (string, error) {
	for _, arguments := range attempts {
		found, err := s.violations(ctx, s.finds, s.inScenario(arguments)...)
		if err != nil || len(found) > 0 {
			return strings.Join(found, "; "), err
		}
	}
	return "", nil
}

func (s search) inScenario(arguments []string) []string {
	if s.scenario != "" {
		arguments = append(slices.Clone(arguments), "--scenario", s.scenario)
	}
	return arguments
}

func (s search) withDefaultCloud(ctx context.Context) (string, error) {
	found, err := s.violations(ctx, ".", "--cloud", "none")
	return strings.Join(found, "; "), err
}

// baseline contains the number of plans, and the number of random runs for each group. None of these plans and runs may
// find an exclusive bug.
type baseline struct{ plans, runs int }

// withoutNewDimensions runs plans and random runs without incidents, cloud semantics and corruptions, and returns the
// violations that these runs find.
func (s search) withoutNewDimensions(ctx context.Context, amount baseline) (string, error) {
	var groups []string
	for _, g := range simulation.Groups() {
		if g != simulation.Incidents {
			groups = append(groups, string(g))
		}
	}
	found, err := s.violations(ctx, ".", "--cloud", "none", "--corruptions", "0", "--breakages", "0",
		"--plans", fmt.Sprint(amount.plans), "--runs", fmt.Sprint(amount.runs), "--group", strings.Join(groups, ","))
	return strings.Join(found, "; "), err
}

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
		kinds[0].name, kinds[0].arguments = "corruptions", []string{"--seed", fmt.Sprint(max(s.seed, 1)), "--plans", "0",
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

// violations runs the program until it reports a violation that matches the given pattern, and returns all matching
// violations. The pattern "^$" returns all violations.
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
		if !failed { // The initial fleet of the scenario did not become ready.
			text, failed = strings.CutPrefix(line, "Error: prepare ")
			text = "prepare " + text
		}
		if failed && (until == "^$" || wanted.MatchString(text)) {
			found = append(found, strings.TrimSpace(text))
		}
	}
	return found, nil
}
