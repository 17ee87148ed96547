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

// Each demo scenario itself checks that the cluster behaves as the scenario describes. Only the scenario drain also
// runs with a separate target cluster, because such a cluster makes no difference for the other scenarios.
//
// Rules: failing-revision-stops, outage-stops-owners, freeze-is-reported, clocks-restart-after-outage,
// health-clock-starts-late, meltdown-stops-remediation.
func TestDemoScenariosSucceed(t *testing.T) {
	t.Parallel()
	forms := [][]string{{"--scenario", "drain", "--separate-target"}}
	for _, name := range demo.ScenarioNames() {
		if name == "drain" && !isFull() {
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

// For an unknown scenario, the demo must start nothing and print the known names.
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
