package reference

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that docs/dev/attacks.md names must exist, and a row of its table must name every attack test.
func TestSecurityNamesTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "dev", "attacks.md"))
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	named, inRow := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		for _, found := range name.FindAllStringSubmatch(line, -1) {
			named[found[1]] = true
			inRow[found[1]] = inRow[found[1]] || strings.HasPrefix(line, "|")
		}
	}
	if len(named) == 0 {
		t.Fatal("docs/dev/attacks.md names no test")
	}
	tests := testsOfRepository(t)
	for name := range named {
		if tests[name] == "" {
			t.Errorf("docs/dev/attacks.md names the test %s, which does not exist", name)
		}
	}
	for name, path := range tests {
		if strings.HasPrefix(name, "TestAttack") && !inRow[name] {
			t.Errorf("%s has the test %s, which no row of docs/dev/attacks.md names", path, name)
		}
	}
}

func testsOfRepository(t *testing.T) map[string]string {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	tests := map[string]string{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, found := range function.FindAllStringSubmatch(string(source), -1) {
			tests[found[1]] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}
