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

// grants is the environment variable that names the folder in which each test records what the processes used of
// their roles. By default it is a temporary one. If it is given, what is there already counts as well: the suite may
// be run in parts, and then with -run '^$' to see what no part used.
const grants = "E2E_GRANTS"

// full reports whether the long journeys run as well, and the others with more machines.
func full() bool { return os.Getenv("FULL") == "1" }

// onlyInFull skips a scenario that takes minutes of every run while others show nearly the same: elsewhere says which.
func onlyInFull(t *testing.T, elsewhere string) {
	t.Helper()
	if !full() {
		t.Skip("FULL=1 runs it. In every run: " + elsewhere)
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	logf.SetLogger(logr.Discard())
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	preserved := os.Getenv(grants) != ""
	if !preserved {
		folder, err := os.MkdirTemp("", "machinist-grants-")
		if err != nil {
			fmt.Fprintln(os.Stderr, "make a folder for the grants that are used:", err)
			return 1
		}
		defer os.RemoveAll(folder)
		os.Setenv(grants, folder)
	}
	code := m.Run()
	selected := flag.Lookup("test.run").Value.String()
	all := selected == "" && flag.Lookup("test.skip").Value.String() == ""
	if code != 0 || !all && !(preserved && selected == "^$") {
		return code
	}
	if err := authorized.Unused(os.Getenv(grants)); err != nil {
		fmt.Fprintln(os.Stderr, "The roles in config/rbac give more than the whole suite needs:")
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
