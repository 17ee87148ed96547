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
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/class/bootstrap/profile"
	"machinist.dev/machinist/providers/libvirt/backend"
)

// Machines join with an unmodified kubeadm and the profile kubeadm. After a change of the Kubernetes version, a new
// machine joins before the old one is drained and deleted.
//
// Rule: kubeadm-join-config.
func TestMachineJoinsWithKubeadmAndIsReplaced(t *testing.T) {
	v := start(t, stack.Options{})
	v.requireNewerKubelet()
	v.prepareForKubeadm()
	v.backend.UserData = kubeadmUserData
	v.Apply()
	first := v.RunningAre(1, examples.SmallClass)[0]
	v.checkNode(&first)
	t.Logf("kubectl get nodes -o wide:\n%s", v.kubectl("get", "nodes", "-o", "wide"))
	web := v.runPod("web", first.Status.NodeRef.Name)
	// Kubelets configured by kubeadm sign their own serving certificates, which this API server does not accept.
	waitForLog := v.followLog(web.Name, "--insecure-skip-tls-verify-backend")

	v.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.Version = backend.Newer })
	second := v.Await("only a machine with the newer version", func(all []v1beta1.Machine) bool {
		return len(all) == 1 && all[0].UID != first.UID && all[0].Status.Phase == v1beta1.MachineRunning
	})[0]
	if got := v.nodeOf(&second).Status.NodeInfo.KubeletVersion; got != backend.Newer {
		t.Errorf("got the kubelet version %s, want %s", got, backend.Newer)
	}
	if log := waitForLog(); !strings.Contains(log, "web ends by signal terminated") {
		t.Errorf("got the log %q of the drained pod, want its end by a signal", log)
	}
	// The pod has ended, but its object may exist until the Node is deleted.
	err := v.Target.Get(t.Context(), client.ObjectKeyFromObject(web), web)
	if err == nil && web.DeletionTimestamp.IsZero() || client.IgnoreNotFound(err) != nil {
		t.Errorf("the pod was not evicted: %v\n%+v", err, web.Status)
	}
	v.Delete()
	v.WaitGone()
}

// prepareForKubeadm runs the phases of `kubeadm init` that follow the start of the control plane, so that nodes can
// join.
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

// kubeadmUserData installs kubeadm, the kubelet and its systemd unit. Images for the profile kubeadm usually contain
// these, but the image of these tests does not.
func kubeadmUserData(url string) ([]byte, error) {
	join, err := profile.Render(profile.Options{
		Profile: "kubeadm",
		Files:   []profile.File{{Path: "/etc/cni/net.d/10-pods.conflist", Content: []byte(backend.PodNetwork)}},
	})
	return withBootHook(fmt.Sprintf(installKubeadm, url), join), err
}

// withBootHook returns user data that runs a script before the cloud-config is processed.
func withBootHook(script string, config []byte) []byte {
	const boundary = "a-boundary-of-parts"
	data := fmt.Appendf(nil, "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=%q\n", boundary)
	data = fmt.Appendf(data, "\n--%s\nContent-Type: text/cloud-boothook\n\n#cloud-boothook\n%s", boundary, script)
	data = fmt.Appendf(data, "\n--%s\nContent-Type: text/cloud-config\n\n%s", boundary, config)
	return fmt.Appendf(data, "\n--%s--\n", boundary)
}

// installKubeadm installs the files of kubeadm's packages. The parameter of installKubeadm is the URL of the server.
const installKubeadm = `#!/bin/sh
set -e
[ ! -e /usr/bin/kubeadm ] || exit 0
for path in <<KUBELET_VERSION>>/kubelet kubeadm; do
	curl --fail --silent --show-error --retry 5 --output "/usr/bin/${path##*/}" "%s/$path"
	chmod 0755 "/usr/bin/${path##*/}"
done
cat <<EOF >/etc/systemd/system/kubelet.service
[Unit]
After=network-online.target preload-images.service
[Service]
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart=/usr/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \\
  --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml \$KUBELET_KUBEADM_ARGS
Restart=always
RestartSec=2
[Install]
WantedBy=multi-user.target
EOF
mkdir -p /etc/kubernetes/manifests
`
