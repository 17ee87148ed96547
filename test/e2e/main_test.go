//go:build e2e

package e2e

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/test/e2e/authorized"
)

// grants is an environment variable with the folder in which each test records the grants that it used. The default is
// a temporary folder. The tests can be divided among several runs that use the same folder, because a run keeps the
// existing records. A final run with -run '^$' reports the grants that no run used.
const grants = "E2E_GRANTS"

// isFull reports whether FULL=1 is set. The slow tests then run, and the other tests use more machines.
func isFull() bool { return os.Getenv("FULL") == "1" }

// onlyInFull skips a slow test unless FULL=1. The argument similar contains the names of tests that check almost the
// same and run even without FULL=1.
func onlyInFull(t *testing.T, similar string) {
	t.Helper()
	if !isFull() {
		t.Skip("FULL=1 runs it. In every run: " + similar)
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	logf.SetLogger(logr.Discard())
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	keep := os.Getenv(grants) != ""
	if !keep {
		folder, err := os.MkdirTemp("", "machinist-grants-")
		if err != nil {
			fmt.Fprintln(os.Stderr, "create a folder for the used grants:", err)
			return 1
		}
		defer os.RemoveAll(folder)
		os.Setenv(grants, folder)
	}
	code := m.Run()
	selected := flag.Lookup("test.run").Value.String()
	all := selected == "" && flag.Lookup("test.skip").Value.String() == ""
	if code != 0 || !all && !(keep && selected == "^$") {
		return code
	}
	if err := authorized.CheckUnused(os.Getenv(grants)); err != nil {
		fmt.Fprintln(os.Stderr, "The roles in config/rbac grant more than the whole suite needs:")
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
