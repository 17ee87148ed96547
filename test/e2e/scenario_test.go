//go:build e2e

package e2e

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/devel/demo"
)

// Each scenario fails if Machinist does not behave as the scenario describes. Only the scenario drain also runs with a
// separate target cluster. For the other scenarios, a separate target cluster makes no difference.
//
// Rules: failing-revision-stops, outage-stops-owners, freeze-is-reported, clocks-restart-after-outage,
// health-clock-starts-late, meltdown-stops-remediation.
func TestDemoScenariosSucceed(t *testing.T) {
	t.Parallel()
	forms := [][]string{{"--scenario", "drain", "--separate-target"}}
	for _, name := range demo.ScenarioNames() {
		if name == "drain" && !full() {
			continue
		}
		forms = append(forms, []string{"--scenario", name})
	}
	for _, args := range forms {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			var out bytes.Buffer
			cmd := exec.Command(filepath.Join(binDir(t), "machinist-demo"), args...)
			cmd.Stdout, cmd.Stderr = &out, &out
			err := cmd.Run()
			t.Logf("after %s:\n%s", time.Since(begun).Round(time.Second), out.String())
			if err != nil {
				t.Errorf("machinist-demo %s: %v", strings.Join(args, " "), err)
			}
		})
	}
}

// If the scenario is unknown, the demo must fail before it starts anything, and must print a list of the known names.
func TestDemoRefusesUnknownScenario(t *testing.T) {
	out, err := exec.Command(filepath.Join(binDir(t), "machinist-demo"), "--scenario", "no-such").CombinedOutput()
	if err == nil {
		t.Error("the demo succeeded with an unknown scenario")
	}
	contains(t, string(out), append(demo.ScenarioNames(), "no-such")...)
	if strings.Contains(string(out), "control plane") {
		t.Errorf("the demo started a control plane:\n%s", out)
	}
}
