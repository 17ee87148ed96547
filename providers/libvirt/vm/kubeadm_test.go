//go:build e2e

package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/controlplane"
	"machinist.dev/machinist/internal/stack"
	"machinist.dev/machinist/providers/libvirt/backend"
)

// A machine joins by the unmodified kubeadm from the user data of the profile kubeadm. When its version changes, another
// one joins in the same way before the first is drained and deleted.
//
// Rule: kubeadm-join-config.
func TestAMachineJoinsByKubeadmIsUpgradedAndDrained(t *testing.T) {
	v := start(t, stack.Options{})
	v.needsNewer()
	v.prepareForKubeadm()
	v.backend.Kubeadm = true
	v.Apply()
	first := v.RunningAre(1, examples.SmallClass)[0]
	v.isARealNode(&first)
	t.Logf("kubectl get nodes -o wide:\n%s", v.kubectl("get", "nodes", "-o", "wide"))
	web := v.pod("web", first.Status.NodeRef.Name)
	// Kubelets that kubeadm configures sign their serving certificates themselves, and this API server verifies them.
	ends := v.follow(web.Name, "--insecure-skip-tls-verify-backend")

	v.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.Version = backend.Newer })
	second := v.Await("a machine of the newer version alone", func(all []v1beta1.Machine) bool {
		return len(all) == 1 && all[0].UID != first.UID && all[0].Status.Phase == v1beta1.MachineRunning
	})[0]
	if got := v.node(&second).Status.NodeInfo.KubeletVersion; got != backend.Newer {
		t.Errorf("the kubelet has the version %s", got)
	}
	if log := ends(); !strings.Contains(log, "web ends by signal terminated") {
		t.Errorf("the log of the drained pod ends with %q", log)
	}
	// The pod has ended; the object goes with its Node.
	err := v.Target.Get(t.Context(), client.ObjectKeyFromObject(web), web)
	if err == nil && web.DeletionTimestamp.IsZero() || client.IgnoreNotFound(err) != nil {
		t.Errorf("the pod was not evicted: %v\n%+v", err, web.Status)
	}
	v.Delete()
	v.Gone()
}

// prepareForKubeadm has kubeadm write into the target cluster what `kubeadm init` does after it has started the control
// plane, so that nodes can join.
func (v *vm) prepareForKubeadm() {
	v.Helper()
	kubeadm, err := controlplane.Locate("kubeadm")
	if err != nil {
		v.Fatal(err)
	}
	server := v.backend.APIServer()
	kubeconfig, err := clientcmd.LoadFromFile(v.Stack.Target.Kubeconfig())
	if err != nil {
		v.Fatal(err)
	}
	for _, cluster := range kubeconfig.Clusters {
		cluster.Server = "https://" + server // as nodes reach it
	}
	dir := v.TempDir()
	admin, config := filepath.Join(dir, "admin.conf"), filepath.Join(dir, "kubeadm.yaml")
	if err := clientcmd.WriteToFile(*kubeconfig, admin); err != nil {
		v.Fatal(err)
	}
	err = os.WriteFile(config, fmt.Appendf(nil, `apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
controlPlaneEndpoint: %s
`, backend.Version, server), 0o600)
	if err != nil {
		v.Fatal(err)
	}
	for _, phase := range []string{"upload-config kubeadm", "upload-config kubelet", "bootstrap-token"} {
		args := append([]string{"init", "phase"}, strings.Fields(phase)...)
		args = append(args, "--config="+config, "--kubeconfig="+admin)
		if output, err := exec.CommandContext(v.Context(), kubeadm, args...).CombinedOutput(); err != nil {
			v.Fatalf("kubeadm %s: %v\n%s", strings.Join(args, " "), err, output)
		}
	}
}
