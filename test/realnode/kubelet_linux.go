package realnode

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/internal/controlplane"
	"machinist.dev/machinist/internal/process"
)

func (c *Cluster) prepareKubelet(path string) (*process.Process, error) {
	if err := c.WriteServerCertificate(c.dir, "kubelet", nodeAddress); err != nil {
		return nil, err
	}
	kubeconfig, err := c.userKubeconfig("system:node:"+NodeName, "system:nodes")
	if err != nil {
		return nil, err
	}
	err = c.write(map[string]string{
		"kubelet.yaml": fmt.Sprintf(kubeletConfig, c.dir, nodeAddress, c.CAFile(), containerdSocket),
		"resolv.conf":  "",
	})
	if err != nil {
		return nil, err
	}
	return c.newProcess("kubelet", path,
		"--config="+filepath.Join(c.dir, "kubelet.yaml"),
		"--kubeconfig="+kubeconfig,
		"--hostname-override="+NodeName,
		"--node-ip="+nodeAddress.String(),
		"--cert-dir="+filepath.Join(c.dir, "kubelet-pki"),
	), nil
}

// kubeletConfig has the folder of the run, the node's address, the authority of the cluster and the socket of
// containerd.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[2]s
tlsCertFile: %[1]s/kubelet.crt
tlsPrivateKeyFile: %[1]s/kubelet.key
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %[3]s}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://%[4]s
clusterDNS: ["%[2]s"]
clusterDomain: cluster.local
resolvConf: %[1]s/resolv.conf
volumePluginDir: %[1]s/volume-plugins
# The machine is not the node's own, whatever version its cgroups have: nothing is reserved and nothing is evicted.
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
evictionHard: {}
failSwapOn: false
oomScoreAdj: 0
imageGCHighThresholdPercent: 100
imageMaximumGCAge: 0s
`

// userKubeconfig writes the kubeconfig of one of the node's programs.
func (c *Cluster) userKubeconfig(user string, groups ...string) (string, error) {
	config, err := c.UserConfig(user, groups...)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, user+".kubeconfig")
	return path, controlplane.WriteKubeconfig(path, config)
}

// nodeReady asks whether pods can be bound to the node.
func (c *Cluster) nodeReady(ctx context.Context) error {
	node, err := c.kube.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return fmt.Errorf("the node is not Ready: %s", condition.Message)
		}
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("the node has taints: %v", node.Spec.Taints)
	}
	return nil
}
