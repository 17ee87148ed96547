package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRunComparesRulesWithTests(t *testing.T) {
	for _, tc := range []struct {
		name, rules, test string
		wantErr           []string
	}{
		{"a test for each rule", "- **a-rule**: one\n- **b-rule**: two\n", "// Rule: a-rule.\n\n// Rule b-rule: x", nil},
		{"several in one comment", "- **a-rule**: one\n- **b-rule**: two\n- **c-rule**: three\n",
			"// Rules: a-rule, b-rule,\n// c-rule.", nil},
		{"a rule without a test", "- **a-rule**: one\n- **b-rule**: two\n", "// Rule: a-rule.",
			[]string{"page.md: no test names the rule b-rule"}},
		{"a test of a rule that does not exist", "- **a-rule**: one\n", "// Rules: a-rule, z-rule.",
			[]string{"x_test.go: spec/ has no rule z-rule"}},
		{"a name in a sentence", "- **a-rule**: one\n", "// This is about a-rule.",
			[]string{"no test names the rule a-rule"}},
		{"a name in a string", "- **a-rule**: one\n", "var _ = \"Rule: a-rule\"", []string{"no test names the rule a-rule"}},
		{"a number for a name", "- **M-1**: one\n", "// Rule: M-1.", []string{`the rule "M-1" needs a name`}},
		{"a rule twice", "- **a-rule**: one\n- **a-rule**: again\n", "// Rule: a-rule.", []string{"the rule a-rule is already defined in"}},
		{"no rules", "nothing", "", []string{"contains no rules"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			writeFile(t, filepath.Join(root, "spec", "page.md"), tc.rules)
			writeFile(t, filepath.Join(root, "x_test.go"), "package x\n"+tc.test+"\n")
			err := run(root, false)
			if len(tc.wantErr) == 0 && err != nil {
				t.Errorf("got error %v, want none", err)
			}
			for _, want := range tc.wantErr {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got error %v, want one with %q", err, want)
				}
			}
		})
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
