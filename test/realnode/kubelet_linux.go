package realnode

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/controlplane"
)

func (c *Cluster) prepareKubelet(ctx context.Context, path string, o Options) (*child.Process, error) {
	kubeconfig, identity, flags, err := c.identifyKubelet(ctx, o)
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf(kubeletConfig, c.dir, nodeAddress, c.CAFile(), containerdSocket)
	err = c.write(map[string]string{"kubelet.yaml": config + identity + o.KubeletConfig, "resolv.conf": ""})
	if err != nil {
		return nil, err
	}
	flags = append(flags,
		"--config="+filepath.Join(c.dir, "kubelet.yaml"),
		"--kubeconfig="+kubeconfig,
		"--hostname-override="+NodeName,
		"--node-ip="+nodeAddress.String(),
		"--cert-dir="+filepath.Join(c.dir, "kubelet-pki"),
	)
	return c.newProcess("kubelet", path, append(flags, o.KubeletFlags...)...), nil
}

// identifyKubelet creates the kubelet's certificates, or a bootstrap token with which the kubelet requests them.
// identifyKubelet returns the path of the kubelet's kubeconfig, and additional configuration and flags. With a token,
// the kubelet writes its own kubeconfig.
func (c *Cluster) identifyKubelet(
	ctx context.Context, o Options,
) (kubeconfig, config string, flags []string, err error) {
	if o.BootstrapToken == "" {
		if err := c.WriteServerCertificate(c.dir, "kubelet", nodeAddress); err != nil {
			return "", "", nil, err
		}
		kubeconfig, err := c.userKubeconfig("system:node:"+NodeName, "system:nodes")
		config := fmt.Sprintf("tlsCertFile: %[1]s/kubelet.crt\ntlsPrivateKeyFile: %[1]s/kubelet.key\n", c.dir)
		return kubeconfig, config, nil, err
	}
	id, secret, _ := strings.Cut(o.BootstrapToken, ".")
	token := &corev1.Secret{Type: corev1.SecretTypeBootstrapToken, StringData: map[string]string{
		"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
		"auth-extra-groups": controlplane.KubeadmTokens}}
	token.Name = "bootstrap-token-" + id
	if _, err := c.kube.CoreV1().Secrets("kube-system").Create(ctx, token, metav1.CreateOptions{}); err != nil {
		return "", "", nil, fmt.Errorf("create the bootstrap token: %w", err)
	}
	bootstrap := filepath.Join(c.dir, "bootstrap.kubeconfig")
	err = controlplane.WriteKubeconfig(bootstrap, &rest.Config{Host: c.Endpoint(), BearerToken: o.BootstrapToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.CA()}})
	return filepath.Join(c.dir, "kubelet.kubeconfig"), "serverTLSBootstrap: true\n",
		[]string{"--bootstrap-kubeconfig=" + bootstrap}, err
}

// kubeletConfig is a format string for the kubelet's configuration. The arguments of kubeletConfig are the folder of
// the run, the address of the node, the file with the cluster's CA, and the socket of containerd.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[2]s
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %[3]s}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://%[4]s
clusterDNS: ["%[2]s"]
clusterDomain: cluster.local
resolvConf: %[1]s/resolv.conf
volumePluginDir: %[1]s/volume-plugins
# The node shares the host with other programs, and the cgroups may have any version. Nothing is reserved or evicted.
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

func (c *Cluster) userKubeconfig(user string, groups ...string) (string, error) {
	config, err := c.UserConfig(user, groups...)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, user+".kubeconfig")
	return path, controlplane.WriteKubeconfig(path, config)
}

func (c *Cluster) nodeReady(ctx context.Context) error {
	node, err := c.kube.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return fmt.Errorf("node is not Ready: %s", condition.Message)
		}
	}
	// The test set all other taints when the node registered.
	for _, taint := range node.Spec.Taints {
		if strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			return fmt.Errorf("node has the taint %s", taint.Key)
		}
	}
	return nil
}
