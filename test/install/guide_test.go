//go:build e2e && linux

package install

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/test/guide"
)

const kubeadmGuide = "docs/get-started/kubeadm.md"

func document(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The other tests must install Machinist with the commands of the guide. The tests may only add flags for tokens and
// for the node of the pods. The tests and the guide must use the fleet examples/sim.
func TestCommandsOfTestsMatchGuide(t *testing.T) {
	tested := map[string][]string{
		cloudRelease:    {chart("simcloud"), "--namespace=" + system, "--create-namespace"},
		coreRelease:     append(coreValues(), chart("machinist")),
		providerRelease: append(providerValues(), chart("machinist-provider")),
	}
	// These flags do not change what is installed. The namespace exists after the first command.
	ignored := []string{"--wait", "--create-namespace", "--set=image.registry=$REGISTRY"}
	joined := strings.ReplaceAll(document(t, kubeadmGuide), "\\\n", " ")
	found := 0
	for _, match := range regexp.MustCompile(`(?m)^helm install (\S+) charts/(\S+)(.*)$`).FindAllStringSubmatch(joined,
		-1) {
		release, flags := match[1], regexp.MustCompile(` +(--\S+) +([^- ]\S*)`).ReplaceAllString(match[3], " $1=$2")
		found++
		for _, arg := range append(strings.Fields(flags), chart(match[2])) {
			if !slices.Contains(ignored, arg) && !slices.Contains(tested[release], arg) {
				t.Errorf("%s installs %s with %s, the tests with %q", kubeadmGuide, release, arg, tested[release])
			}
		}
	}
	if found != len(tested) {
		t.Errorf("%s has %d helm install commands, want %d", kubeadmGuide, found, len(tested))
	}
	if !strings.Contains(joined, "\nkubectl apply -f examples/sim\n") {
		t.Errorf("%s does not apply examples/sim", kubeadmGuide)
	}
	version := regexp.MustCompile(`(?m)^appVersion: *(\S+)$`).FindStringSubmatch(document(t, "charts/machinist/Chart.yaml"))
	for _, path := range []string{"README.md", kubeadmGuide} {
		if version == nil || !strings.Contains(document(t, path), "make images VERSION="+version[1]+" ") {
			t.Errorf("%s does not build the images for the appVersion of the charts, %s", path, version)
		}
	}
}

// The commands of the guide must work as readers copy them. The test skips the commands that build images, install Helm
// or create the cluster.
func TestCommandsOfKubeadmGuideWork(t *testing.T) {
	m := newMachinist(t)
	h := helmOf(t, m.cluster, "4")
	begun := time.Now()
	for _, block := range guide.Blocks(document(t, kubeadmGuide), "sh") {
		if strings.HasPrefix(block, "make ") || strings.HasPrefix(block, "export PATH=") {
			continue
		}
		m.shell(h, block)
		if strings.Contains(block, "helm install") {
			m.awaitReady("default", fleetSize)
			progress(t, "with the commands of %s, the fleet is Ready after %.1f s", kubeadmGuide, time.Since(begun).Seconds())
		}
	}
	if machines := m.machines("default"); len(machines) > 0 {
		t.Errorf("the commands of %s left %d Machines, want none", kubeadmGuide, len(machines))
	}
	nodes := &corev1.NodeList{}
	if err := m.api.List(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 1 {
		t.Errorf("the commands of %s left %d Nodes, want only that of the control plane", kubeadmGuide, len(nodes.Items))
	}
	if releases := strings.TrimSpace(h.run(t, "list", "--namespace="+system, "--short")); releases != "" {
		t.Errorf("the commands of %s left the releases %s", kubeadmGuide, releases)
	}
}
