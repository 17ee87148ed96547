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

// KubeadmNodeName is the name of the one node of a cluster that kubeadm made, which has the control plane's taint.
const KubeadmNodeName = "control-plane"

// KubeadmOptions say what a cluster that kubeadm makes consists of, in addition to what kubeadm installs.
type KubeadmOptions struct {
	// Layouts are the OCI layouts with more images that pods can use. An image NAME:TAG in a layout is pulled as
	// ANY-REGISTRY/NAME:TAG.
	Layouts []string

	// Output receives the output of kubeadm, and a line for each step of StartKubeadm.
	Output io.Writer
}

// KubeadmCluster is a cluster that the unmodified kubeadm made: containerd, a kubelet, and the control plane,
// kube-proxy and CoreDNS as pods.
type KubeadmCluster struct {
	*host

	config *rest.Config
	kube   kubernetes.Interface
}

// Paths in the namespaces of a KubeadmCluster.
const (
	kubeadmKubeconfig = "/etc/kubernetes/admin.conf"
	kubeadmAuditLog   = "/var/log/kubernetes/audit.log"
	kubeadmPolicy     = "/etc/kubernetes/audit/policy.yaml"
	kubeletLog        = "/var/log/kubelet.log"
)

// StartKubeadm makes a cluster by `kubeadm init`, installs a CNI plugin's configuration, as kubeadm expects of its users,
// and returns when the node and all pods of the cluster are ready. Like Start it can run once in a process.
func StartKubeadm(ctx context.Context, o KubeadmOptions) (*KubeadmCluster, error) {
	begun := time.Now()
	h, err := newHost(o.Output)
	if err != nil {
		return nil, fmt.Errorf("start kubeadm cluster: %w", err)
	}
	c := &KubeadmCluster{host: h}
	if err := c.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("start kubeadm cluster: %w", err), c.Stop())
	}
	c.logf("the cluster of kubeadm is ready after %s", since(begun))
	return c, nil
}

func (c *KubeadmCluster) start(ctx context.Context, o KubeadmOptions) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not within %v", startTimeout))
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
		return fmt.Errorf("ask kubeadm for its version: %w", err)
	}
	err = c.write(map[string]string{"kubeadm.yaml": fmt.Sprintf(kubeadmConfig, nodeAddress, KubeadmNodeName,
		strings.TrimSpace(string(version)), podRange, kubeadmPolicy, kubeadmAuditLog)})
	if err != nil {
		return err
	}
	// SystemVerification demands cgroups of version 2 and a kernel configuration that can be read.
	kubeadm := exec.CommandContext(ctx, c.programs.kubeadm, "init", "--config="+filepath.Join(c.dir, "kubeadm.yaml"),
		"--ignore-preflight-errors=SystemVerification")
	kubeadm.Stdout, kubeadm.Stderr = c.output, c.output
	if err := kubeadm.Run(); err != nil {
		return fmt.Errorf("kubeadm init: %w; the kubelet's log ends with\n%s", err, tail(kubeletLog))
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

// prepareMachine makes the namespaces look like a machine of its own, with what the packages of kubeadm install: a
// kubelet that systemd starts.
func (c *KubeadmCluster) prepareMachine() error {
	if err := overlay(c.dir, "/etc", "/usr", "/opt"); err != nil {
		return err
	}
	// kubeadm takes the address of the default route's interface for the node's, and CoreDNS forwards to a name server
	// that is not itself. Nothing is behind that interface.
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
	// Some systems have a link there, to a folder that is empty now.
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
		path := filepath.Join("/usr/bin", name) // This machine may have one.
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
		if err := os.Symlink(program, path); err != nil {
			return err
		}
	}
	return os.MkdirAll(filepath.Dir(kubeadmAuditLog), 0o755)
}

// awaitPods waits until the node and all pods of the system are ready.
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

// notReady names the pods and the node that are not ready.
func (c *KubeadmCluster) notReady(ctx context.Context) (names []string, err error) {
	node, err := c.kube.CoreV1().Nodes().Get(ctx, KubeadmNodeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			names = append(names, "node "+node.Name+": "+condition.Message)
		}
	}
	pods, err := c.kube.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) < 7 { // etcd, three of the control plane, kube-proxy, and two of CoreDNS
		names = append(names, fmt.Sprintf("%d pods of 7", len(pods.Items)))
	}
	for _, pod := range pods.Items {
		ready := false
		for _, condition := range pod.Status.Conditions {
			ready = ready || condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		}
		if !ready {
			names = append(names, fmt.Sprintf("pod %s: %s %v", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses))
		}
	}
	return names, nil
}

// Stop ends the kubelet, containerd and the registry. Containers end with the process of the test: see Main.
func (c *KubeadmCluster) Stop() error {
	_ = exec.Command("/usr/bin/systemctl", "stop", "kubelet").Run() // It may not have been started.
	return c.host.stop()
}

// Kubeconfig returns the path of the administrator's kubeconfig file, which exists in the namespaces only.
func (c *KubeadmCluster) Kubeconfig() string { return kubeadmKubeconfig }

// Config returns a configuration for an administrator, without throttling.
func (c *KubeadmCluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kube returns a client as administrator.
func (c *KubeadmCluster) Kube() kubernetes.Interface { return c.kube }

// Kubectl returns the path of kubectl of the cluster's version.
func (c *KubeadmCluster) Kubectl() string { return c.programs.kubectl }

// Kubeadm returns the path of kubeadm.
func (c *KubeadmCluster) Kubeadm() string { return c.programs.kubeadm }

// AuditLog returns the path of the audit log, with all requests.
func (c *KubeadmCluster) AuditLog() string { return kubeadmAuditLog }

// tail returns the end of a file.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// kubeadmConfig is kubeadm's configuration with the node's address and name, the version of Kubernetes, the addresses
// of pods, and the audit policy and log. What differs from kubeadm's defaults:
//
//   - the audit log, by which tests count writes;
//   - failCgroupV1, cgroupDriver, cgroupsPerQOS, enforceNodeAllocatable and localStorageCapacityIsolation, because the
//     cgroups may be of version 1 and are those of a container. kubeadm drops an empty list: none says the same;
//   - evictionHard, because the disk is the machine's and not the node's;
//   - conntrack, because those settings belong to the whole machine.
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

// systemctl stands in for systemd, which cannot run in these namespaces. It knows the unit kubelet, as the packages of
// kubeadm define it.
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
