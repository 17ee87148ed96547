//go:build e2e && linux

package install

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/test/realnode"
)

type helm struct {
	version     string // major version of Helm: 3 or 4
	path        string
	environment []string
}

func helmOf(t *testing.T, c *realnode.KubeadmCluster, version string) *helm {
	t.Helper()
	path := os.Getenv("HELM" + version)
	if path == "" {
		t.Fatalf("HELM%s is not set: `make e2e-install` builds Helm and runs these tests", version)
	}
	// Keep the user's own Helm configuration and cache out of the test.
	home := t.TempDir()
	environment := append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	for _, folder := range []string{"CACHE", "CONFIG", "DATA"} {
		environment = append(environment, "HELM_"+folder+"_HOME="+filepath.Join(home, folder))
	}
	return &helm{version: version, path: path, environment: environment}
}

func (h *helm) run(t *testing.T, args ...string) string {
	t.Helper()
	begun := time.Now()
	output, err := h.try(args...)
	if err != nil {
		t.Fatal(err)
	}
	progress(t, "helm%s %s: %.1f s", h.version, strings.Join(args[:min(2, len(args))], " "), time.Since(begun).Seconds())
	return output
}

func (h *helm) try(args ...string) (string, error) {
	command := exec.Command(h.path, args...)
	command.Env = h.environment
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		return output.String(), fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, output.String())
	}
	return output.String(), nil
}
