//go:build e2e && linux

package install

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/internal/class/bootstrap"
)

// With the configuration from Machinist, an unmodified kubeadm must find the cluster, verify the identity of the
// cluster, and read everything for a join. The test uses a dry run, because this host is already a node of the
// cluster.
//
// Rule: kubeadm-join-config.
func TestKubeadmJoinsWithRenderedConfiguration(t *testing.T) {
	m := newMachinist(t)
	h := helmOf(t, m.cluster, "4")
	h.run(t, slices.Concat([]string{"install", coreRelease, chart("machinist"), "--set=install.processes=false"},
		coreValues())...)
	tokens := bootstrap.Tokens{Client: m.api}
	attempt := bootstrap.Attempt{Machine: types.NamespacedName{Namespace: "default", Name: "joins"}, UID: "joins",
		Number: 1}
	token, err := tokens.Ensure(t.Context(), attempt, bootstrap.Terms{Expires: time.Now().Add(time.Hour), Signing: true})
	if err != nil {
		t.Fatal(err)
	}
	config := m.cluster.Config()
	rendered, err := bootstrap.Render([]byte("<<KUBEADM_JOIN_CONFIG>>"), bootstrap.Values{APIEndpoint: config.Host,
		CABundle: config.CAData, BootstrapToken: token.Value})
	if err != nil {
		t.Fatal(err)
	}
	// The name of this host is already taken, because the host is a node of the cluster.
	rendered = bytes.Replace(rendered, []byte(`"nodeRegistration":{`), []byte(`"nodeRegistration":{"name":"joins",`), 1)
	file := filepath.Join(t.TempDir(), "join.yaml")
	if err := os.WriteFile(file, rendered, 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), m.cluster.Kubeadm(), "join", "--config="+file, "--dry-run", "--v=2",
		"--ignore-preflight-errors=all").CombinedOutput()
	const trusted = "signature and contents are valid and TLS certificate validates against pinned roots"
	if err != nil || !strings.Contains(string(output), trusted) {
		t.Errorf("kubeadm join: %v\n%s", err, output)
	}
	if err := tokens.Delete(t.Context(), attempt); err != nil {
		t.Error(err)
	}
	h.run(t, "uninstall", coreRelease, "--namespace="+system)
}
