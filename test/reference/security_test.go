package reference

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/security.md names the tests that prove its statements.
func TestTestsNamedInSecurityExist(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	missing := regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(string(text), -1)
	if len(missing) == 0 {
		t.Fatal("docs/security.md names no test")
	}
	err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		missing = slices.DeleteFunc(missing, func(name []string) bool {
			return strings.Contains(string(source), "\nfunc "+name[1]+"(")
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range missing {
		t.Errorf("docs/security.md names the test %s, which does not exist", name[1])
	}
}
