//go:build e2e

package e2e

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The demo's tour is the shortest proof that everything works together.
func TestTheDemoTour(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"demo", "--once"}, {"demo", "--once", "--separate-target"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			begun := time.Now()
			var out bytes.Buffer
			cmd := exec.Command(filepath.Join(binDir(t), "machinist"), args...)
			cmd.Stdout, cmd.Stderr = &out, &out
			err := cmd.Run()
			t.Logf("after %s:\n%s", time.Since(begun).Round(time.Second), out.String())
			if err != nil {
				t.Errorf("machinist %s: %v", strings.Join(args, " "), err)
			}
		})
	}
}
