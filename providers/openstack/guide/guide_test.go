//go:build e2e

// Package guide tests the guide that leads from an OpenStack project to a Node. The guide starts its own OpenStack,
// and all other tests share another OpenStack. Therefore this test has its own package.
package guide

import (
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/test/guide"
)

// patience is the time limit of each step. The first step may have to unpack OpenStack.
const patience = 15 * time.Minute

// The hypervisors of this cloud are fake, so the test does not prove that an image boots.
func TestCommandsOfOpenStackGuideWork(t *testing.T) {
	output, terminal := guide.Trial{Root: "../../..", Page: "docs/get-started/openstack.md", Patience: patience}.Run(t)
	if strings.Count(output, " Ready ") != 1 {
		t.Errorf("the guide shows no Ready node:\n%s", output)
	}
	for _, kind := range []string{"server", "port", "volume"} {
		if left := strings.TrimSpace(terminal.Run("openstack " + kind + " list --format value\n")); left != "" {
			t.Errorf("the guide leaves a %s:\n%s", kind, left)
		}
	}
}
