package conformance

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reference/conformance.md")

// TestReferenceListsEveryCase checks that docs/reference/conformance.md lists all cases. With -update, it generates the
// page.
func TestReferenceListsEveryCase(t *testing.T) {
	const path = "../../../docs/reference/conformance.md"
	var page strings.Builder
	page.WriteString("# Conformance cases\n\n" +
		"Generated from the cases by `go test ./pkg/provider/conformance -run TestReferenceListsEveryCase -update`. " +
		"[Writing a provider](../provider-guide.md#conformance-tests) explains the suite and what its cases need.\n\n")
	page.WriteString("| case | what it expects | needs |\n|---|---|---|\n")
	for _, c := range cases() {
		needs := make([]string, len(c.needs))
		for i, n := range c.needs {
			needs[i] = "`" + string(n) + "`"
		}
		fmt.Fprintf(&page, "| %s | %s | %s |\n", c.name, c.rule, strings.Join(needs, ", "))
	}
	if *update {
		if err := os.WriteFile(path, []byte(page.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != page.String() {
		t.Errorf("docs/reference/conformance.md is outdated: run this test with -update to get\n%s", page.String())
	}
}

// TestGuideDescribesEveryFault checks that the table of faults in the provider guide contains every injected fault, and
// only existing cases.
func TestGuideDescribesEveryFault(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/provider-guide.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(guide), "\n## What every cloud can do to a driver\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var names []string
	for _, c := range cases() {
		names = append(names, c.name)
		for _, n := range c.needs {
			kind, isFault := strings.CutPrefix(string(n), "Cloud.Inject: ")
			if isFault && !slices.Contains([]string{"PermissionDenied", "Hanging"}, kind) &&
				!strings.Contains(section, "`"+kind+"`") {
				t.Errorf("the section does not describe the fault %s", kind)
			}
		}
	}
	rows := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 4 || strings.HasPrefix(cells[0], " the cloud") && rows == 0 ||
			strings.HasPrefix(cells[3], "no hook") {
			continue
		}
		rows++
		tested, _, _ := strings.Cut(regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(cells[3], ""), ".")
		for name := range strings.SplitSeq(tested, ",") {
			if name = strings.TrimSpace(name); !slices.Contains(names, name) {
				t.Errorf("the row %q names the case %q, which does not exist", cells[0], name)
			}
		}
	}
	if rows < 15 {
		t.Errorf("the table has only %d rows that name cases: the test checks nothing", rows)
	}
}
