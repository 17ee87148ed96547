package conformance

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestTheGuideListsEveryCase keeps the table in the authors' guide true. Where it fails it shows the table to paste.
func TestTheGuideListsEveryCase(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/provider-guide.md")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| case | what it expects | needs |\n|---|---|---|\n")
	for _, c := range cases() {
		needs := make([]string, len(c.needs))
		for i, n := range c.needs {
			needs[i] = "`" + string(n) + "`"
		}
		fmt.Fprintf(&table, "| %s | %s | %s |\n", c.name, c.says, strings.Join(needs, ", "))
	}
	if !strings.Contains(string(guide), "\n"+table.String()+"\n") {
		t.Errorf("docs/provider-guide.md has another table of cases than this one:\n%s", table.String())
	}
}
