package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRulesAndTestsAreHeldTogether(t *testing.T) {
	for _, tc := range []struct {
		name, rules, test string
		wantErr           []string
	}{
		{"all is well", "- **M-1** one\n- **M-2** two\n", "// M-1: x\nvar _ = \"M-2\"", nil},
		{"a rule without a test", "- **M-1** one\n- **M-2** two\n", "// M-1", []string{"no test names the rule M-2"}},
		{"a test of a rule that is not there", "- **M-1** one\n", "// M-1 M-7",
			[]string{"x_test.go: docs/rules.md has no rule M-7"}},
		{"other things that look like numbers", "- **M-1** one\n", "// M-1 A-1 sha-256\nvar a = 1\nvar _ = a-1", nil},
		{"a number outside of comments and strings", "- **M-1** one\n", "var M = 2\nvar _ = M-1",
			[]string{"no test names the rule M-1"}},
		{"a rule twice", "- **M-1** one\n- **M-1** again\n", "// M-1", []string{"M-1 is there twice"}},
		{"no rules", "nothing", "", []string{"no rules"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, filepath.Join(root, "docs", "rules.md"), tc.rules)
			write(t, filepath.Join(root, "x_test.go"), "package x\n"+tc.test+"\n")
			err := run(root, false)
			if len(tc.wantErr) == 0 && err != nil {
				t.Errorf("error: %v", err)
			}
			for _, want := range tc.wantErr {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error = %v, want one with %q", err, want)
				}
			}
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
