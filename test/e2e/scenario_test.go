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

// A scenario fails by itself when something that it tells does not come true. That it makes no difference whether the
// target cluster is another one, the drain tells for all.
//
// Rules: failing-revision-stops, outage-stops-owners, freeze-is-reported, clocks-restart-after-outage,
// health-clock-starts-late, meltdown-stops-remediation.
func TestTheDemoScenarios(t *testing.T) {
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

// Who mistypes a scenario is reported the names, before anything is started.
func TestAnUnknownScenarioIsRefusedWithTheNames(t *testing.T) {
	out, err := exec.Command(filepath.Join(binDir(t), "machinist-demo"), "--scenario", "no-such").CombinedOutput()
	if err == nil {
		t.Error("it ended without an error")
	}
	contains(t, string(out), append(demo.ScenarioNames(), "no-such")...)
	if strings.Contains(string(out), "control plane") {
		t.Errorf("it started something:\n%s", out)
	}
}
