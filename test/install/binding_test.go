//go:build e2e && linux

package install

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli"
	"machinist.dev/machinist/test/env"
)

// Three places must report that bootstrap tokens may not request certificates: `machinist preflight`, the condition of
// the class, and `machinist why` for a waiting machine. After an administrator has run the suggested command, the fleet
// must become Ready.
//
// Rule: join-is-checked-beforehand.
func TestMissingNodeBootstrapperBindingIsReported(t *testing.T) {
	m := newMachinist(t)
	h := helmOf(t, m.cluster, "4")
	m.installCloud(h)
	h.run(t, slices.Concat([]string{"install", coreRelease, chart("machinist"), "--set=nodeBootstrapper.enabled=false"},
		coreValues())...)
	h.run(t, slices.Concat([]string{"install", providerRelease, chart("machinist-provider")}, providerValues())...)

	output, err := m.command("preflight")
	if err == nil || !strings.Contains(output, "Error: "+v1beta1.ReasonTokensMayNotRequest) {
		t.Errorf("machinist preflight does not report the missing binding: %v\n%s", err, output)
	}
	m.fleet("default")
	m.awaitJoinBlocked(metav1.ConditionTrue)
	env.Await(t, m.api, &v1beta1.MachineList{}, "a machine that waits for its Node",
		func(l *v1beta1.MachineList) (bool, string) {
			return slices.ContainsFunc(l.Items, func(o v1beta1.Machine) bool {
				c := meta.FindStatusCondition(o.Status.Conditions, v1beta1.ConditionRegistered)
				return c != nil && c.Reason == v1beta1.ReasonWaitingForNode
			}), m.describe("default")
		}, client.InNamespace("default"))
	output, err = m.command("why", "machine/"+m.machines("default")[0].Name)
	if err != nil || !strings.Contains(output, "may not create CertificateSigningRequests") {
		t.Errorf("machinist why does not report the missing binding: %v\n%s", err, output)
	}

	fix := regexp.MustCompile(`kubectl create clusterrolebinding \S+ \S+ \S+`).FindString(output)
	m.shell(h, fix)
	t.Cleanup(func() { m.shell(h, "kubectl delete clusterrolebinding machinist-node-bootstrapper") })
	m.awaitReady("default", fleetSize)
	m.awaitJoinBlocked("")
	if output, err := m.command("preflight", "--probe"); err != nil || strings.Contains(output, "Not checked") {
		t.Errorf("machinist preflight --probe: %v\n%s", err, output)
	}
	csrs, err := m.cluster.Kube().CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil || slices.ContainsFunc(csrs.Items, func(o certificatesv1.CertificateSigningRequest) bool {
		return strings.HasPrefix(o.Name, "machinist-preflight")
	}) {
		t.Errorf("the certificate request of the probe still exists, or the list failed: %v", err)
	}
	m.cleanUp(h)
}

// awaitJoinBlocked waits until the condition JoinBlocked of each class has the given status. The status "" means that
// there is no such condition.
func (m *machinist) awaitJoinBlocked(status metav1.ConditionStatus) {
	m.t.Helper()
	env.Await(m.t, m.api, &v1beta1.MachineClassList{}, fmt.Sprintf("classes with JoinBlocked=%q", status),
		func(l *v1beta1.MachineClassList) (bool, string) {
			for i := range l.Items {
				c := meta.FindStatusCondition(l.Items[i].Status.Conditions, v1beta1.ConditionJoinBlocked)
				if c == nil && status != "" || c != nil && c.Status != status {
					return false, fmt.Sprintf("%s: %+v", l.Items[i].Name, c)
				}
			}
			return len(l.Items) > 0, "no class exists"
		}, client.InNamespace("default"))
}

func (m *machinist) command(args ...string) (string, error) {
	var out bytes.Buffer
	environment := cli.NewEnv(&out, &out)
	root := &cobra.Command{Use: "machinist", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(cli.Commands(environment)...)
	root.SetArgs(append(args, "--kubeconfig="+m.cluster.Kubeconfig(), "--namespace=default"))
	err := root.ExecuteContext(m.t.Context())
	return out.String(), err
}

func (m *machinist) shell(h *helm, script string) {
	m.t.Helper()
	bin := m.t.TempDir()
	for name, program := range map[string]string{"helm": h.path, "kubectl": m.cluster.Kubectl()} {
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			m.t.Fatal(err)
		}
	}
	command := exec.Command("bash", "-euo", "pipefail", "-c", script)
	command.Dir = root
	command.Env = append(slices.Clone(h.environment), "PATH="+bin+":"+os.Getenv("PATH"))
	if output, err := command.CombinedOutput(); err != nil {
		m.t.Fatalf("%s: %v\n%s", script, err, output)
	}
}
