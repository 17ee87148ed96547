//go:build e2e

// Package guide tests the guide that leads from an OpenStack project to a Node. It is a package of its own, because the
// guide starts a cloud that is not the one of the other tests.
package guide

import (
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/test/guide"
)

// patience includes the time in which the first start unpacks OpenStack and creates its databases.
const patience = 15 * time.Minute

// The guests of this cloud are simulated, so the test shows nothing about the boot of an image.
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
