package realnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"machinist.dev/machinist/devel/controlplane"
)

// KubeadmNodeName is the name of the only node in a KubeadmCluster. The node has the taint of control plane nodes.
const KubeadmNodeName = "control-plane"

// KubeadmOptions are the options of a KubeadmCluster.
type KubeadmOptions struct {
	// Layouts are the folders of OCI layouts with additional images for pods. An image NAME:TAG is available from any
	// registry: ANY-REGISTRY/NAME:TAG.
	Layouts []string

	// Output receives the output of kubeadm and a line for each step of StartKubeadm.
	Output io.Writer
}

// KubeadmCluster is a cluster that the original kubeadm program has created. The cluster consists of containerd, a
// kubelet, and pods for the control plane, kube-proxy and CoreDNS.
type KubeadmCluster struct {
	*host

	config *rest.Config
	kube   kubernetes.Interface
}

const (
	kubeadmKubeconfig = "/etc/kubernetes/admin.conf"
	kubeadmAuditLog   = "/var/log/kubernetes/audit.log"
	kubeadmPolicy     = "/etc/kubernetes/audit/policy.yaml"
	kubeletLog        = "/var/log/kubelet.log"
)

// StartKubeadm creates a cluster with `kubeadm init`, and installs the configuration of a CNI plugin. StartKubeadm
// returns when the node and all pods of the cluster are ready. A process can call StartKubeadm only once, like Start.
func StartKubeadm(ctx context.Context, o KubeadmOptions) (*KubeadmCluster, error) {
	begun := time.Now()
	h, err := newHost(o.Output)
	if err != nil {
		return nil, fmt.Errorf("start kubeadm cluster: %w", err)
	}
	c := &KubeadmCluster{host: h}
	if err := c.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("start kubeadm cluster: %w", err), c.Stop(), c.unexpectedEnds())
	}
	c.logf("the kubeadm cluster is ready after %s", since(begun))
	return c, nil
}

func (c *KubeadmCluster) start(ctx context.Context, o KubeadmOptions) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("timeout after %v", startTimeout))
	defer cancel()
	images, err := filepath.Glob(filepath.Join(c.programs.images, "*"))
	if err != nil {
		return err
	}
	if err := c.prepareMachine(); err != nil {
		return err
	}
	awaitRuntime, err := c.startRuntime(append(images, o.Layouts...))
	if err != nil {
		return err
	}
	if err := awaitRuntime(ctx); err != nil {
		return err
	}
	c.logf("registry and containerd are ready after %s", since(begun))
	version, err := exec.CommandContext(ctx, c.programs.kubeadm, "version", "-o", "short").Output()
	if err != nil {
		return fmt.Errorf("get the version of kubeadm: %w", err)
	}
	err = c.write(map[string]string{"kubeadm.yaml": fmt.Sprintf(kubeadmConfig, nodeAddress, KubeadmNodeName,
		strings.TrimSpace(string(version)), podRange, kubeadmPolicy, kubeadmAuditLog)})
	if err != nil {
		return err
	}
	// SystemVerification fails on hosts without cgroups v2 or without a readable kernel configuration.
	kubeadm := exec.CommandContext(ctx, c.programs.kubeadm, "init", "--config="+filepath.Join(c.dir, "kubeadm.yaml"),
		"--ignore-preflight-errors=SystemVerification")
	kubeadm.Stdout, kubeadm.Stderr = c.output, c.output
	if err := kubeadm.Run(); err != nil {
		return fmt.Errorf("run kubeadm init: %w; the end of the kubelet log:\n%s", err, tail(kubeletLog))
	}
	c.logf("kubeadm init ended after %s", since(begun))
	if c.config, err = clientcmd.BuildConfigFromFlags("", kubeadmKubeconfig); err != nil {
		return err
	}
	c.config.QPS, c.config.Burst = -1, 0
	if c.kube, err = kubernetes.NewForConfig(c.config); err != nil {
		return err
	}
	return c.awaitPods(ctx)
}

// prepareMachine makes the namespaces look like a separate machine with the packages of kubeadm, where systemd starts
// the kubelet.
func (c *KubeadmCluster) prepareMachine() error {
	if err := overlay(c.dir, "/etc", "/usr", "/opt"); err != nil {
		return err
	}
	// kubeadm uses the address of the interface with the default route as the node's address. CoreDNS needs a name
	// server other than itself. No host is reachable through this interface.
	err := setUpNetwork(
		"ip link add uplink type veth peer name upstream",
		"ip link set uplink up",
		"ip link set upstream up",
		fmt.Sprintf("ip address add %s/24 dev uplink", nodeAddress),
		fmt.Sprintf("ip route add default via %s", gatewayAddress),
	)
	if err != nil {
		return fmt.Errorf("prepare network: %w", err)
	}
	if err := setHostname(KubeadmNodeName); err != nil {
		return err
	}
	// On some systems, this file is a symbolic link into a folder that is now empty.
	if err := os.Remove("/etc/resolv.conf"); err != nil && !os.IsNotExist(err) {
		return err
	}
	for path, content := range map[string]string{
		"/etc/hosts":       fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", nodeAddress, KubeadmNodeName),
		"/etc/resolv.conf": fmt.Sprintf("nameserver %s\n", gatewayAddress),
		kubeadmPolicy:      controlplane.AuditPolicy,
	} {
		if err := writeFile(path, content, 0o644); err != nil {
			return err
		}
	}
	if err := writeFile("/usr/bin/systemctl", systemctl, 0o755); err != nil {
		return err
	}
	for name, program := range map[string]string{
		"kubeadm": c.programs.kubeadm, "kubelet": c.programs.kubelet, "kubectl": c.programs.kubectl,
	} {
		path := filepath.Join("/usr/bin", name) // The host may have the program.
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
		if err := os.Symlink(program, path); err != nil {
			return err
		}
	}
	return os.MkdirAll(filepath.Dir(kubeadmAuditLog), 0o755)
}

func (c *KubeadmCluster) awaitPods(ctx context.Context) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		waiting, err := c.notReady(ctx)
		if err == nil && len(waiting) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%w: not ready: %v", context.Cause(ctx), waiting), err)
		}
	}
}

func (c *KubeadmCluster) notReady(ctx context.Context) (descriptions []string, err error) {
	node, err := c.kube.CoreV1().Nodes().Get(ctx, KubeadmNodeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			descriptions = append(descriptions, "node "+node.Name+": "+condition.Message)
		}
	}
	pods, err := c.kube.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) < 7 { // The pods are etcd, three control plane components, kube-proxy and two CoreDNS.
		descriptions = append(descriptions, fmt.Sprintf("%d of 7 pods exist", len(pods.Items)))
	}
	for _, pod := range pods.Items {
		ready := false
		for _, condition := range pod.Status.Conditions {
			ready = ready || condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		}
		if !ready {
			descriptions = append(descriptions,
				fmt.Sprintf("pod %s: %s %v", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses))
		}
	}
	return descriptions, nil
}

// Stop stops the kubelet, containerd and the registry. Containers end only with the test process (see Main).
func (c *KubeadmCluster) Stop() error {
	_ = exec.Command("/usr/bin/systemctl", "stop", "kubelet").Run() // The kubelet may not be running.
	return c.host.stop()
}

// Kubeconfig returns the path of the administrator's kubeconfig. The file exists only in the namespaces.
func (c *KubeadmCluster) Kubeconfig() string { return kubeadmKubeconfig }

// Config returns an administrator's client configuration without throttling.
func (c *KubeadmCluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kube returns an administrator's client.
func (c *KubeadmCluster) Kube() kubernetes.Interface { return c.kube }

// Kubectl returns the path of a kubectl with the version of the cluster.
func (c *KubeadmCluster) Kubectl() string { return c.programs.kubectl }

// Kubeadm returns the path of kubeadm.
func (c *KubeadmCluster) Kubeadm() string { return c.programs.kubeadm }

// AuditLog returns the path of the audit log, which contains all requests.
func (c *KubeadmCluster) AuditLog() string { return kubeadmAuditLog }

func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// kubeadmConfig is a format string for kubeadm's configuration. The arguments of kubeadmConfig are the address and
// the name of the node, the version of Kubernetes, the address range of pods, and the paths of the audit policy and
// log. The configuration changes these defaults of kubeadm:
//
//   - the audit log, because tests count writes with it;
//   - failCgroupV1, cgroupDriver, cgroupsPerQOS, enforceNodeAllocatable and localStorageCapacityIsolation, because the
//     cgroups may have version 1 and may be those of a container. kubeadm drops an empty list of
//     enforceNodeAllocatable, and [none] means the same;
//   - evictionHard, because the disk belongs to the host and not to the node;
//   - conntrack, because these settings apply to the whole host.
const kubeadmConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %[1]s}
nodeRegistration: {name: %[2]s}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %[3]s
networking: {podSubnet: %[4]s}
apiServer:
  extraArgs:
  - {name: audit-policy-file, value: %[5]s}
  - {name: audit-log-path, value: %[6]s}
  - {name: audit-log-mode, value: blocking}
  - {name: audit-log-maxsize, value: "0"}
  extraVolumes:
  - {name: audit-policy, hostPath: %[5]s, mountPath: %[5]s, readOnly: true, pathType: File}
  - {name: audit-log, hostPath: /var/log/kubernetes, mountPath: /var/log/kubernetes, pathType: Directory}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: [none]
localStorageCapacityIsolation: false
evictionHard: {imagefs.available: 0%%, nodefs.available: 0%%}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
conntrack: {maxPerCore: 0, min: 0}
`

// systemctl is a script that replaces the systemctl of systemd, because systemd cannot run in these namespaces. The
// script supports only the unit kubelet, as in the packages of kubeadm.
const systemctl = `#!/bin/sh
unit=$(echo "$*" | tr ' ' '\n' | grep -v '^--' | sed -n 2p)
pid=$(cat /run/kubelet.pid 2>/dev/null)
running() { [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; }
case $1 in
daemon-reload | enable) exit 0 ;;
esac
case ${unit%.service} in
kubelet) ;;
*) echo "Unit $unit.service could not be found."; exit 4 ;;
esac
case $1 in
is-enabled) echo enabled ;;
is-active) running && echo active || { echo inactive; exit 3; } ;;
status) echo "kubelet.service" ;;
start | restart | stop)
	if running && [ "$1" != start ]; then
		kill "$pid"
		while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
		pid=
	fi
	[ "$1" != stop ] && ! running || exit 0
	KUBELET_KUBEADM_ARGS=
	[ ! -f /var/lib/kubelet/kubeadm-flags.env ] || . /var/lib/kubelet/kubeadm-flags.env
	setsid kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
		--kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml \
		$KUBELET_KUBEADM_ARGS >>` + kubeletLog + ` 2>&1 </dev/null &
	echo $! >/run/kubelet.pid ;;
esac
`
