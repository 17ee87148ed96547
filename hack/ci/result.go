package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"machinist.dev/machinist/test/fidelity"
)

// result describes one run of a target.
type result struct {
	Target, Commit string
	// Minutes is the time limit of the target.
	Minutes   float64
	Wall, CPU time.Duration
	// Passed and Failed count tests, including subtests. Skipped contains names such as conformance.TestX, with the
	// last element of the package path. Unexpected contains the tests that must not be skipped.
	Passed, Failed      int
	Skipped, Unexpected []string
	// Executed contains the tests without subtests that were not skipped, such as test/x:TestThis. A test whose
	// subtests were all skipped counts as skipped.
	Executed []string
	// Notes contains the checks that scripts skipped, with reasons.
	Notes []string
	// Failure is the exit status of the command make. If make succeeded, Failure is empty.
	Failure string
}

// count counts the results that `go test -json` wrote into the files of a folder.
func (r *result) count(folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		in, err := os.Open(file)
		if err != nil {
			return err
		}
		err = r.add(in)
		_ = in.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// modulePrefix is the part of a package path that precedes its folder.
const modulePrefix = "machinist.dev/machinist/"

func (r *result) add(events io.Reader) error {
	// A test ends after its subtests. The maps contain the tests with a subtest that was executed or skipped.
	executed, skipped := map[string]bool{}, map[string]bool{}
	for decoder := json.NewDecoder(events); ; {
		var e struct{ Action, Package, Test string }
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if e.Test == "" {
			continue
		}
		switch e.Action {
		case "pass":
			r.Passed++
		case "fail":
			r.Failed++
		case "skip":
			r.Skipped = append(r.Skipped, path.Base(e.Package)+"."+e.Test)
		default:
			continue
		}
		name := strings.TrimPrefix(e.Package, modulePrefix) + ":" + e.Test
		end := strings.LastIndex(name, "/")
		isSubtest := end > strings.Index(name, ":")
		switch wasSkipped := e.Action == "skip" || skipped[name] && !executed[name]; {
		case isSubtest && wasSkipped:
			skipped[name[:end]] = true
		case isSubtest:
			executed[name[:end]] = true
		case !wasSkipped:
			r.Executed = append(r.Executed, name)
		}
	}
}

func (r *result) save(folder string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(resultPath(folder, r.Target), text, 0o644)
}

// loadResults returns the results of a commit, sorted by end time.
func loadResults(folder, commit string) ([]*result, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	times := map[*result]time.Time{}
	var results []*result
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		r := &result{}
		if err := json.Unmarshal(text, r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		info, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		if r.Commit == commit {
			results, times[r] = append(results, r), info.ModTime()
		}
	}
	slices.SortFunc(results, func(a, b *result) int { return times[a].Compare(times[b]) })
	return results, nil
}

func printTable(out io.Writer, results []*result) {
	var total result
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "target\tminutes\tlimit\tCPU minutes\tpassed\tfailed\tskipped\tresult\t")
	printRow := func(r *result, outcome string) {
		fmt.Fprintf(w, "%s\t%.1f\t%g\t%.1f\t%d\t%d\t%d\t%s\t\n", r.Target, r.Wall.Minutes(), r.Minutes, r.CPU.Minutes(),
			r.Passed, r.Failed, len(r.Skipped), outcome)
	}
	for _, r := range results {
		outcome := "ok"
		switch {
		case r.Failure != "":
			outcome = r.Failure
		case len(r.Unexpected) > 0:
			outcome = "skipped tests"
		case r.Wall.Minutes() > r.Minutes:
			outcome = "ok, slow"
		}
		printRow(r, outcome)
		total.Wall, total.CPU, total.Minutes = total.Wall+r.Wall, total.CPU+r.CPU, total.Minutes+r.Minutes
		total.Passed, total.Failed = total.Passed+r.Passed, total.Failed+r.Failed
		total.Skipped = append(total.Skipped, r.Skipped...)
	}
	total.Target = "all"
	printRow(&total, "")
	_ = w.Flush()
	for _, r := range results {
		for _, note := range r.Notes {
			fmt.Fprintf(out, "%s skipped a check: %s\n", r.Target, note)
		}
		for _, test := range r.Unexpected {
			fmt.Fprintf(out, "%s must not skip %s; to allow that, add the test to .ci/skips\n", r.Target, test)
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", total.Passed, total.Failed, len(total.Skipped))
}

// skips contains the tests that may be skipped, with reasons.
type skips map[string]string

// readSkips reads lines with the name of a test, such as conformance.TestX, and a reason. A line also applies to the
// subtests of its test.
func readSkips(path string) (skips, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := skips{}
	for i, line := range strings.Split(string(text), "\n") {
		test, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
		if test == "" || strings.HasPrefix(test, "#") {
			continue
		}
		if strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%s:%d: %s has no reason", path, i+1, test)
		}
		s[test] = strings.TrimSpace(reason)
	}
	return s, nil
}

// missingTests returns the tests that the inventory of test/fidelity lists and that no target executed.
func missingTests(results []*result, nightly bool) []string {
	executed := map[string]bool{}
	for _, r := range results {
		for _, test := range r.Executed {
			executed[test] = true
		}
	}
	return fidelity.Missing(fidelity.Behaviours(), nightly, executed)
}

// onlyFull is the prefix of the reason if a test runs only with FULL=1.
const onlyFull = "FULL=1 "

// unexpectedSkips returns the tests that must not be skipped, without the names of subtests.
func (s skips) unexpectedSkips(skipped []string, full bool) (unexpected []string) {
	for _, test := range skipped {
		name, _, _ := strings.Cut(test, "/")
		if reason := s[name]; reason == "" || full && strings.HasPrefix(reason, onlyFull) {
			unexpected = append(unexpected, test)
		}
	}
	return unexpected
}
