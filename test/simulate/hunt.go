package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// mutantRuns bounds how long a mutant is looked for at random: the rarest shows in one run of three thousand.
// mutantPlans is how many plans are tried before, for those that plans find.
const (
	mutantRuns  = 20_000
	mutantPlans = 4_000
	// mutantFaults is how many faults are tried for each scenario where the cloud's semantics show a mutant.
	mutantFaults = 60
	// mutantCorruptions is how many corruptions of a scenario are tried.
	mutantCorruptions = 4_000
)

// build is a program with a bug planted, or why there is none.
type build struct {
	mutant mutant
	binary string
	took   time.Duration
	err    error
}

// detectAll plants each bug in a build of this command of its own and lets that check for violations, while the next
// one is built. match selects mutants by name, and every one of so many of those. With a kind cloud, those that only
// semantics of clouds show must survive the sweep without them; with intact objects, those that only corruptions show.
func detectAll(ctx context.Context, match string, every int, kind, intact bool) error {
	if every < 1 {
		return fmt.Errorf("--every is %d; it must be at least 1", every)
	}
	pattern, err := regexp.Compile(match)
	if err != nil {
		return fmt.Errorf("--match is %q: %w", match, err)
	}
	dir, err := os.MkdirTemp("", "machinist-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all := slices.Concat(mutants, planMutants(), drainMutants(), safetyMutants(), cloudMutants(), migrationMutants(),
		disruptionMutants(), incidentMutants(), clusterAPIMutants(), corruptionMutants(), fidelityMutants(), shardMutants())
	var stale []error
	for _, m := range all {
		if _, err := m.plant(); err != nil {
			stale = append(stale, fmt.Errorf("mutant %s: %w", m.name, err))
		}
	}
	if len(stale) > 0 {
		return errors.Join(stale...)
	}
	all = slices.DeleteFunc(all, func(m mutant) bool { return !pattern.MatchString(m.name) })
	if kind {
		all = slices.DeleteFunc(all, func(m mutant) bool { return m.cloud == "" })
	}
	if intact {
		all = slices.DeleteFunc(all, func(m mutant) bool { return m.corruption == "" })
	}
	var chosen []mutant
	for i, m := range all {
		if i%every == 0 {
			chosen = append(chosen, m)
		}
	}
	all = chosen
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	var survivors []string
	by := map[string]int{}
	for b := range builds(ctx, dir, all) {
		if b.err != nil {
			return fmt.Errorf("mutant %s: %w", b.mutant.name, b.err)
		}
		began := time.Now()
		detect := b.mutant.detect
		if kind {
			detect = b.mutant.detectWithDefaultCloud
		}
		if intact {
			detect = b.mutant.detectWithoutCorruptions
		}
		found, err := detect(ctx, b.binary)
		os.Remove(b.binary)
		switch {
		case err != nil:
			return fmt.Errorf("mutant %s: %w", b.mutant.name, err)
		case found == "":
			survivors = append(survivors, b.mutant.name)
			fmt.Printf("SURVIVED  %s\n", b.mutant.name)
		default:
			oracle := oracleOf(found)
			by[oracle]++
			fmt.Printf("found     %-34s by %-12s built in %4.1f s, found in %4.1f s: %.160s\n", b.mutant.name, oracle,
				b.took.Seconds(), time.Since(began).Seconds(), found)
		}
	}
	for _, oracle := range slices.Sorted(maps.Keys(by)) {
		fmt.Printf("%-12s found %d\n", oracle, by[oracle])
	}
	fmt.Printf("%d of %d planted bugs found in %.0f s\n", len(all)-len(survivors), len(all), time.Since(began).Seconds())
	switch {
	case kind && len(survivors) < len(all):
		return fmt.Errorf("%d are found without semantics of clouds", len(all)-len(survivors))
	case intact && len(survivors) < len(all):
		return fmt.Errorf("%d are found without corruptions", len(all)-len(survivors))
	case !kind && !intact && len(survivors) > 0:
		return fmt.Errorf("not found: %s", strings.Join(survivors, ", "))
	}
	return nil
}

var (
	// seedOf is what comes before the text of a violation, ruleOf the word that it begins with where it breaks a rule.
	seedOf = regexp.MustCompile(`^(scenario \S+, seed \d+|prepare scenario \S+): (undisturbed: )?`)
	ruleOf = regexp.MustCompile(`^(\w+): `)
)

// oracleOf names the judge of a violation: the rule that it breaks, or what the run lacks.
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
	return "?"
}

// builds returns the mutants' programs as they become ready, one ahead of whoever takes them.
func builds(ctx context.Context, dir string, all []mutant) <-chan build {
	out := make(chan build, 1)
	go func() {
		defer close(out)
		for _, m := range all {
			began := time.Now()
			binary, err := m.build(ctx, dir)
			select {
			case out <- build{m, binary, time.Since(began), err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// plant returns the files with the bug in them, by their absolute names.
func (m mutant) plant() (map[string]string, error) {
	planted := map[string]string{}
	if m.without != nil {
		var err error
		if planted, err = m.without.plant(); err != nil {
			return nil, err
		}
	}
	file, err := filepath.Abs(m.file)
	if err != nil {
		return nil, err
	}
	source, changed := planted[file]
	if !changed {
		read, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		source = string(read)
	}
	found := asQuoted(m.from).FindAllStringIndex(source, -1)
	if len(found) != 1 {
		return nil, fmt.Errorf("%s has %d times the text that is replaced: %q", m.file, len(found), m.from)
	}
	planted[file] = source[:found[0][0]] + m.to + source[found[0][1]:]
	return planted, nil
}

// asQuoted matches a quote from a source however its lines are broken.
func asQuoted(from string) *regexp.Regexp {
	quote := strings.TrimLeft(from, " \t\n")
	pattern := strings.Join(strings.FieldsFunc(regexp.QuoteMeta(quote), unicode.IsSpace), `\s+`)
	if strings.TrimRight(quote, " \t\n") != quote {
		pattern += `\s+`
	}
	if quote != from {
		pattern = `[ \t]*` + pattern
	}
	return regexp.MustCompile(pattern)
}

// build builds this command with the bug.
func (m mutant) build(ctx context.Context, dir string) (string, error) {
	planted, err := m.plant()
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, source := range planted {
		replace[file] = filepath.Join(dir, fmt.Sprintf("%s-%d.go", m.name, len(replace)))
		if err := os.WriteFile(replace[file], []byte(source), 0o600); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlayFile, binary := filepath.Join(dir, m.name+".json"), filepath.Join(dir, m.name)
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return "", err
	}
	// Without what a debugger needs there is half as much to link, which is what takes the time.
	out, err := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-overlay", overlayFile, "-o", binary,
		"./test/simulate").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return binary, nil
}

// detect returns the violation that gave the mutant away, "" if there was none.
func (m mutant) detect(ctx context.Context, binary string) (string, error) {
	var attempts [][]string
	if m.handovers {
		return m.run(ctx, binary, "handovers")
	}
	if m.cloud != "" {
		return m.run(ctx, binary, "--cloud", m.cloud, "--faults", fmt.Sprint(mutantFaults))
	}
	switch {
	case m.corruption != "":
		seed := fmt.Sprint(max(m.last, 1))
		attempts = [][]string{{"--seed", seed, "--corrupt", m.corruption},
			{"--seed", seed, "--plans", "0", "--runs", "0", "--corruptions", fmt.Sprint(mutantCorruptions)}}
		return m.first(ctx, binary, attempts)
	case m.plan != "":
		attempts = append(attempts, []string{"--seed", fmt.Sprint(max(m.last, 1)), "--plan", m.plan})
	case m.last > 0:
		attempts = append(attempts, []string{"--seed", fmt.Sprint(m.last), "--runs", "1", "--plans", "0",
			"--corruptions", "0"})
	}
	if m.planned || m.plan != "" {
		attempts = append(attempts, []string{"--runs", "0", "--plans", fmt.Sprint(mutantPlans),
			"--corruptions", "0"})
	}
	attempts = append(attempts, []string{"--runs", fmt.Sprint(mutantRuns), "--plans", "0", "--corruptions", "0"})
	return m.first(ctx, binary, attempts)
}

// first returns what the first of some attempts finds.
func (m mutant) first(ctx context.Context, binary string, attempts [][]string) (string, error) {
	for _, arguments := range attempts {
		if found, err := m.run(ctx, binary, arguments...); err != nil || found != "" {
			return found, err
		}
	}
	return "", nil
}

// detectWithoutCorruptions has a build with the bug make many runs of its scenario in which nothing is corrupted.
func (m mutant) detectWithoutCorruptions(ctx context.Context, binary string) (string, error) {
	m.finds = "."
	return m.first(ctx, binary, [][]string{{"--corruptions", "0", "--plans", fmt.Sprint(mutantPlans / 2), "--runs",
		fmt.Sprint(mutantRuns / 10)}})
}

// detectWithDefaultCloud has a build with the bug make the usual sweep without semantics of clouds.
func (m mutant) detectWithDefaultCloud(ctx context.Context, binary string) (string, error) {
	m.cloud, m.finds = "", "."
	return m.run(ctx, binary)
}

// run has a build with the bug look for violations.
func (m mutant) run(ctx context.Context, binary string, arguments ...string) (string, error) {
	arguments = append(arguments, "--until", m.finds)
	if m.cloud == "" && !m.handovers {
		arguments = append(arguments, "--cloud", "none")
	}
	if m.scenario != "" {
		arguments = append(arguments, "--scenario", m.scenario)
	}
	out, err := exec.CommandContext(ctx, binary, arguments...).CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		text, failed := strings.CutPrefix(line, "FAILED ")
		if !failed { // Not even the fleet that a scenario begins with came up.
			text, failed = strings.CutPrefix(line, "Error: prepare ")
			text = "prepare " + text
		}
		if failed && regexp.MustCompile(m.finds).MatchString(text) {
			return strings.TrimSpace(text), nil
		}
	}
	return "", nil
}
