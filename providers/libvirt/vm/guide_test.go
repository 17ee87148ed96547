//go:build e2e

package vm

import (
	"strings"
	"testing"

	"machinist.dev/machinist/hack/libvirt"
	"machinist.dev/machinist/providers/libvirt/backend"
	"machinist.dev/machinist/test/guide"
)

// The guide must lead from a Debian host to a Ready node with a real kubelet and a pod.
func TestCommandsOfLibvirtGuideWork(t *testing.T) {
	output, terminal := guide.Trial{Root: "../../..", Page: "docs/get-started/libvirt.md", Patience: patience}.Run(t)
	if strings.Count(output, " Ready ") != 1 || !strings.Contains(output, "web runs in web") {
		t.Errorf("the guide does not show one Ready node and the log of a pod:\n%s", output)
	}
	if domains := strings.TrimSpace(terminal.Run("virsh list --all --name\n")); domains != "" {
		t.Errorf("the guide leaves the domains %s", domains)
	}
	volumes := strings.Fields(terminal.Run("virsh --quiet vol-list " + libvirt.PoolName + "\n"))
	if len(volumes) != 2 || volumes[0] != backend.Base { // Each entry is a name and a path.
		t.Errorf("the guide leaves the volumes %q, want only %s", volumes, backend.Base)
	}
}
