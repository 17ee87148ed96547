package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/test/fidelity"
)

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func names(targets []target) (all []string) {
	for _, t := range targets {
		all = append(all, t.name)
	}
	return all
}

func TestReadTargetsParsesLines(t *testing.T) {
	targets, err := readTargets(writeFile(t, "# comment\n\nverify 2\nlong 1.5 e2e FULL=1\n"))
	if err != nil || len(targets) != 2 || !slices.Equal(targets[0].args, []string{"verify"}) ||
		!slices.Equal(targets[1].args, []string{"e2e", "FULL=1"}) || targets[1].minutes != 1.5 {
		t.Errorf("readTargets: %+v, %v", targets, err)
	}
	for _, bad := range []string{"verify", "verify x", "verify 0", "# nothing"} {
		if _, err := readTargets(writeFile(t, bad)); err == nil {
			t.Errorf("readTargets(%q) returned no error", bad)
		}
	}
}

func TestPartOfBalancesMinutes(t *testing.T) {
	targets := []target{{name: "a", minutes: 10}, {name: "b", minutes: 30}, {name: "c", minutes: 20}, {name: "d",
		minutes: 5}}
	for part, want := range map[string][]string{"1/1": {"a", "b", "c", "d"}, "1/2": {"b", "d"}, "2/2": {"a", "c"}} {
		if got, err := partOf(targets, part, 65); err != nil || !slices.Equal(names(got), want) {
			t.Errorf("partOf(%s) = %v, %v, want %v", part, names(got), err, want)
		}
	}
	if _, err := partOf(targets, "1/1", 64); err == nil || !strings.Contains(err.Error(), "may take 65 minutes") {
		t.Errorf("partOf above the limit: %v", err)
	}
	for _, bad := range []string{"", "0/2", "3/2", "x"} {
		if _, err := partOf(targets, bad, 100); err == nil {
			t.Errorf("partOf(%q) returned no error", bad)
		}
	}
}

func TestRepositoryTargetsAreWithinLimit(t *testing.T) {
	for file, limit := range map[string]float64{"targets": 35, "nightly": 10000} {
		targets, err := readTargets(filepath.Join("../../.ci", file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := partOf(targets, "1/1", limit); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// A tag of an action can be moved to another commit, so workflows must pin commits.
func TestActionsOfWorkflowsArePinned(t *testing.T) {
	pinned := regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	files, err := filepath.Glob("../../.github/workflows/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("found workflows %v, error %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			_, action, found := strings.Cut(strings.TrimSpace(line), "uses: ")
			if found && !strings.HasPrefix(action, "./") && !pinned.MatchString(action) {
				t.Errorf("%s: %s is not pinned by the digest of a commit with its version as a comment", file, action)
			}
		}
	}
}

func TestVulncheckFailsWithoutRequiredDatabase(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("without curl, the script builds govulncheck first")
	}
	check := exec.Command("../vulncheck.sh")
	check.Env = append(os.Environ(), "GOVULNDB=http://127.0.0.1:1")
	if out, err := check.CombinedOutput(); err == nil || !strings.Contains(string(out), "http://127.0.0.1:1") {
		t.Errorf("the check ended with %v and printed %q, want an error that names the database", err, out)
	}
}

const events = `{"Action":"run","Package":"example.com/a","Test":"TestA"}
{"Action":"pass","Package":"example.com/a","Test":"TestA"}
{"Action":"skip","Package":"example.com/x/a","Test":"TestB/sub"}
{"Action":"skip","Package":"example.com/a","Test":"FuzzD/seed#1"}
{"Action":"fail","Package":"example.com/a","Test":"TestC"}
{"Action":"pass","Package":"example.com/a"}
`

func TestResultCountsTests(t *testing.T) {
	r := &result{Target: "test", Minutes: 5, Wall: 2 * time.Minute, CPU: 3 * time.Minute, Commit: "abc",
		Notes: []string{"no network"}}
	if err := r.add(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	if r.Passed != 1 || r.Failed != 1 || !slices.Equal(r.Skipped, []string{"a.TestB/sub", "a.FuzzD/seed#1"}) {
		t.Errorf("got the result %+v", r)
	}
	allowed, err := readSkips(writeFile(t, "a.TestB needs KVM\na.FuzzD some seeds do not apply\n"))
	if err != nil || len(allowed.unexpectedSkips(r.Skipped, true)) != 0 {
		t.Errorf("unexpected: %v, %v", allowed.unexpectedSkips(r.Skipped, true), err)
	}
	long := skips{"a.TestB": "FULL=1 runs it", "a.FuzzD": "some seeds do not apply"}
	short, all := long.unexpectedSkips(r.Skipped, false), long.unexpectedSkips(r.Skipped, true)
	if len(short) != 0 || !slices.Equal(all, []string{"a.TestB/sub"}) {
		t.Errorf("unexpected without and with FULL=1: %v, %v", short, all)
	}
	r.Unexpected = skips{}.unexpectedSkips(r.Skipped, false)
	if len(r.Unexpected) != 2 {
		t.Errorf("unexpected: %v", r.Unexpected)
	}
	folder := t.TempDir()
	other := &result{Target: "other", Commit: "previous"}
	for _, r := range []*result{r, other} {
		if err := r.save(folder); err != nil {
			t.Fatal(err)
		}
	}
	results, err := loadResults(folder, "abc")
	if err != nil || len(results) != 1 {
		t.Fatalf("loadResults: %v, %v", results, err)
	}
	var out bytes.Buffer
	printTable(&out, results)
	for _, want := range []string{"skipped tests", "test skipped a check: no network",
		"test must not skip a.TestB/sub", "\n1 passed, 1 failed, 2 skipped\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
}

// Output of `go test -json`, without the events that contain no result. In the first run, one of two selected cases was
// skipped. In the second run, the only selected case was skipped. The third run skipped a test without subtests.
const (
	oneSkipped = `{"Action":"pass","Package":"machinist.dev/machinist/test/fakecloud","Test":"TestCloudConforms/slow_boot_and_shutdown/NotFound","Elapsed":0.03}
` + allSkipped
	allSkipped = `{"Action":"skip","Package":"machinist.dev/machinist/test/fakecloud","Test":"TestCloudConforms/slow_boot_and_shutdown/LateTags","Elapsed":0}
{"Action":"pass","Package":"machinist.dev/machinist/test/fakecloud","Test":"TestCloudConforms/slow_boot_and_shutdown","Elapsed":0.02}
{"Action":"pass","Package":"machinist.dev/machinist/test/fakecloud","Test":"TestCloudConforms","Elapsed":0}
`
	testSkipped = `{"Action":"skip","Package":"machinist.dev/machinist/hack/ci","Test":"TestVulncheckFailsWithoutRequiredDatabase","Elapsed":0}
`
)

func TestSkippedTestsAreNotExecuted(t *testing.T) {
	const test = "test/fakecloud:TestCloudConforms"
	for _, c := range []struct {
		events string
		want   []string
	}{{oneSkipped, []string{test}}, {allSkipped, nil}, {testSkipped, nil}} {
		r := &result{}
		if err := r.add(strings.NewReader(c.events)); err != nil || !slices.Equal(r.Executed, c.want) {
			t.Errorf("got the executed tests %q and the error %v, want %q, for\n%s", r.Executed, err, c.want, c.events)
		}
		if missing := slices.Contains(missingTests([]*result{r}, false), test); missing != (c.want == nil) {
			t.Errorf("%s is missing: %t, for\n%s", test, missing, c.events)
		}
	}
}

func TestMissingTestsDependOnRun(t *testing.T) {
	var daily, nightly []string
	for _, b := range fidelity.Behaviours() {
		daily, nightly = append(daily, b.Tests...), append(nightly, b.Nightly...)
	}
	without := func(all []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(test string) bool { return test == all[0] })
	}
	results := []*result{{Target: "test", Executed: without(daily)}, {Target: "e2e", Executed: without(nightly)}}
	for run, want := range map[bool]string{false: daily[0], true: nightly[0]} {
		if got := missingTests(results, run); !slices.Equal(got, []string{want}) {
			t.Errorf("missingTests(nightly=%t) = %q, want %s", run, got, want)
		}
	}
	if got := targetsWithout(results, []target{{name: "lint"}, {name: "test"}}); !slices.Equal(got, []string{"lint"}) {
		t.Errorf("targetsWithout: %q", got)
	}
}

func TestSkipsNeedReason(t *testing.T) {
	if _, err := readSkips(writeFile(t, "a.TestB\n")); err == nil || !strings.Contains(err.Error(), "a.TestB has no reason") {
		t.Errorf("readSkips: %v", err)
	}
}

func TestNotesOfReadsSkippedChecks(t *testing.T) {
	notes := notesOf(strings.NewReader("a\nSKIPPED: there is no network\nb SKIPPED: x\n"))
	if !slices.Equal(notes, []string{"there is no network"}) {
		t.Errorf("notesOf: %q", notes)
	}
}

// Tests would silently skip a renamed scenario.
func TestShortScenariosExist(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(makefile), "E2E_SHORT := -run '^(")
	list, _, found := strings.Cut(list, ")$$'")
	if !found {
		t.Fatal("the Makefile has no E2E_SHORT")
	}
	files, err := filepath.Glob("../../test/e2e/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	for _, name := range strings.Split(list, "|") {
		if !strings.Contains(all.String(), "\nfunc "+name+"(t *testing.T)") {
			t.Errorf("E2E_SHORT names the scenario %s, which does not exist", name)
		}
	}
}
