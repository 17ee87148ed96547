package migration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"machinist.dev/machinist/pkg/provider"
)

func lines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return line == "" })
}

const (
	blocker = provider.FindingBlocker
	loss    = provider.FindingLoss
	note    = provider.FindingNote
)

func TestFindingsAreSortedByLevelAndCode(t *testing.T) {
	var f findings
	f.addf(note, "N", "Machine/a", "", "n")
	f.addf(loss, "L2", "Machine/b", "spec.y", "second")
	f.addf(loss, "L2", "Machine/b", "spec.x", "first")
	f.addf(loss, "L1", "Machine/c", "", "l")
	f.addf(blocker, "B", "Machine/d", "spec", "b")
	want := []string{
		"Blocker B Machine/d spec: b",
		"Loss L1 Machine/c: l",
		"Loss L2 Machine/b spec.x: first",
		"Loss L2 Machine/b spec.y: second",
		"Note N Machine/a: n",
	}
	if got := lines(f.text()); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestSummaryIsLimited(t *testing.T) {
	var f findings
	for i := range 150 {
		for range 3 {
			f.addf(loss, fmt.Sprintf("Code%03d", i), "Machine/a", "", "%s", strings.Repeat("ü", 2000))
		}
	}
	f.addf(blocker, "Code001", "Machine/b", "", "the same code at another level")
	got := f.summary()
	if len(got) != maxSummary {
		t.Errorf("%d lines, expected %d", len(got), maxSummary)
	}
	if got[0].Level != string(blocker) || got[0].Count != 1 || got[1].Code != "Code000" || got[1].Count != 3 {
		t.Errorf("the summary begins with %+v", got[:2])
	}
	for _, line := range got {
		if n := utf8.RuneCountInString(line.Message); n > 1024 || !utf8.ValidString(line.Message) {
			t.Errorf("the message of %s has %d characters, valid: %t", line.Code, n, utf8.ValidString(line.Message))
		}
	}
}

func TestBlockersAndUnacceptedLossesBlock(t *testing.T) {
	var f findings
	for i := range 5 {
		f.addf(blocker, "B", fmt.Sprintf("Machine/%d", i), "", "b")
		f.addf(loss, "L1", fmt.Sprintf("Machine/%d", i), "spec.x", "l")
		f.addf(loss, "L2", fmt.Sprintf("Machine/%d", i), "", "l")
		f.addf(note, "N", fmt.Sprintf("Machine/%d", i), "", "n")
	}
	want := []string{"B Machine/0: b", "B Machine/1: b", "B Machine/2: b",
		"the loss L1 is not accepted: Machine/0 spec.x: l"}
	if got := f.obstacles([]string{"L2", "B", "Unknown"}); !slices.Equal(got, want) {
		t.Errorf("the reasons are %q, expected %q", got, want)
	}
	if got := f.obstacles([]string{"L1", "L2"}); !slices.Equal(got, want[:3]) {
		t.Errorf("with all losses accepted, the reasons are %q", got)
	}
}

// Rule: migration-plan-is-agreed-to.
func TestHashCoversClassesBlockersAndLosses(t *testing.T) {
	base := func() (f findings) {
		f.addf(loss, "L", "Machine/a", "spec.x", "l")
		f.addf(note, "N", "Machine/a", "spec.y", "n")
		return f
	}
	classes := []string{"class one {}", "class two {}"}
	agreed := base().hash(classes)
	for name, c := range map[string]struct {
		change  func(*findings)
		classes []string
		same    bool
	}{
		"the same loss of another machine": {func(f *findings) { f.addf(loss, "L", "Machine/b", "spec.x", "again") },
			classes, true},
		"another note":             {func(f *findings) { f.addf(note, "M", "Machine/b", "spec.z", "n") }, classes, true},
		"the order of the classes": {func(*findings) {}, []string{"class two {}", "class one {}"}, true},
		"another field":            {func(f *findings) { f.addf(loss, "L", "Machine/b", "spec.z", "l") }, classes, false},
		"another code":             {func(f *findings) { f.addf(loss, "K", "Machine/b", "spec.x", "l") }, classes, false},
		"a Blocker of that code":   {func(f *findings) { f.addf(blocker, "L", "Machine/b", "spec.x", "l") }, classes, false},
		"another content of a class": {func(*findings) {}, []string{"class one {}", `class two {"size":"large"}`},
			false},
		"another class": {func(*findings) {}, append(slices.Clone(classes), "class three {}"), false},
	} {
		f := base()
		c.change(&f)
		if got := f.hash(c.classes); (got == agreed) != c.same {
			t.Errorf("%s: the hash is %s, the agreed one %s", name, got, agreed)
		}
	}
}

// Rule: migration-losses-are-accepted-by-place.
func TestLossIsAcceptedByCodeObjectOrPath(t *testing.T) {
	var f findings
	f.addf(loss, "SecurityProfile", "MachineSet/a", "spec.securityProfile", "x")
	f.addf(loss, "SecurityProfile", "MachineSet/b", "spec.securityProfile.settings", "x")
	for entries, want := range map[string]int{
		"":                        1,
		"Other":                   1,
		"SecurityProfile":         0,
		"SecurityProfile@":        1,
		"Other@MachineSet/a":      1,
		"SecurityProfile@Other/a": 1,
		"SecurityProfile@MachineSet/a,SecurityProfile@MachineSet/b":         0,
		"SecurityProfile@spec.securityProfile,SecurityProfile@MachineSet/b": 0,
		"SecurityProfile@MachineSet/a spec.securityProfile":                 1,
		"SecurityProfile@spec.securityProfile":                              1,
	} {
		if got := f.obstacles(strings.Split(entries, ",")); len(got) != want {
			t.Errorf("%s: got the obstacles %q", entries, got)
		}
	}
}
