package realnode

import (
	"context"
	"fmt"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/devel/child"
)

func (c *Cluster) prepareProxy(path string) (*child.Process, error) {
	// By default, the API server binds the role of kube-proxy to the user system:kube-proxy.
	kubeconfig, err := c.userKubeconfig("system:kube-proxy")
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf(proxyConfig, kubeconfig, NodeName)
	return c.newProcess("kube-proxy", path, "--config="+filepath.Join(c.dir, "kube-proxy.yaml")),
		c.write(map[string]string{"kube-proxy.yaml": config})
}

// proxyConfig is a format string for kube-proxy's configuration. The arguments of proxyConfig are the path of the
// kubeconfig and the name of the node. Settings of connection tracking stay unchanged, because they apply to the
// whole host.
const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: "%s"}
hostnameOverride: %s
clusterCIDR: ` + podRange + `
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
oomScoreAdj: 0
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

func (c *Cluster) prepareDNS(path string) (*child.Process, error) {
	const user = "coredns"
	kubeconfig, err := c.userKubeconfig(user)
	if err != nil {
		return nil, err
	}
	if err := c.grantDNS(user); err != nil {
		return nil, err
	}
	corefile := fmt.Sprintf(dnsConfig, nodeAddress, kubeconfig)
	return c.newProcess("coredns", path, "-conf", filepath.Join(c.dir, "Corefile")),
		c.write(map[string]string{"Corefile": corefile})
}

// dnsConfig is a format string for CoreDNS's configuration. The arguments of dnsConfig are the address of the node,
// which pods use as their DNS server, and the path of the kubeconfig.
const dnsConfig = `.:53 {
  bind %s
  errors
  ready 127.0.0.1:8181
  kubernetes cluster.local {
    kubeconfig %s
  }
}
`

func (c *Cluster) grantDNS(user string) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	verbs := []string{"list", "watch"}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"namespaces", "pods", "services"}, Verbs: verbs},
			{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: verbs},
		},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := c.kube.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the role of CoreDNS: %w", err)
	}
	if _, err := c.kube.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("bind the role of CoreDNS: %w", err)
	}
	return nil
}
