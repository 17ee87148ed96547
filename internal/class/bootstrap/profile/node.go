package profile

import (
	"fmt"
	"strings"
)

// These are paths on the machine that several files use.
const (
	kubeconfigPath    = "/etc/kubernetes/bootstrap-kubeconfig"
	clientCAPath      = "/etc/kubernetes/pki/ca.crt"
	kubeletConfigPath = "/var/lib/kubelet/config.yaml"
	environmentPath   = "/etc/default/kubelet"
	proxyPath         = "/etc/machinist/proxy.env"
	installPath       = "/opt/machinist/install-kubelet"
	resolvConfPath    = "/var/lib/kubelet/resolv.conf"
)

const bootstrapKubeconfig = `apiVersion: v1
kind: Config
clusters:
  - name: target
    cluster:
      server: "<<API_ENDPOINT>>"
      certificate-authority-data: "<<CA_BUNDLE_BASE64>>"
users:
  - name: bootstrap
    user:
      token: "<<BOOTSTRAP_TOKEN>>"
contexts:
  - name: bootstrap
    context:
      cluster: target
      user: bootstrap
current-context: bootstrap
`

func (m *machine) joinByKubelet(o Options, d distribution) error {
	m.addCredentials(o)
	if err := m.configureKubelet(o, d); err != nil {
		return err
	}
	if d.packaging != nil || d.configuresRuntime { // Images with a preinstalled kubelet have prepared the kernel.
		m.prepareKernel()
	}
	m.addProxy(o, "containerd.service")
	if o.hasProxy() && d.packaging != nil {
		d.packaging.proxy(m, o)
	}
	m.installRuntime(o, d)
	m.installKubelet(o, d)
	return nil
}

// addCredentials adds the files with which the kubelet and the API server authenticate each other.
func (m *machine) addCredentials(o Options) {
	m.files = append(m.files,
		file{path: kubeconfigPath, mode: 0o600, text: bootstrapKubeconfig},
		file{path: environmentPath, mode: 0o644, text: "KUBELET_VERSION=<<KUBELET_VERSION>>\n"})
	if o.ClientCA != nil {
		m.files = append(m.files, file{path: clientCAPath, mode: 0o644, text: toBase64(o.ClientCA), base64: true})
		return
	}
	m.files = append(m.files, file{path: clientCAPath, mode: 0o644, text: "<<CA_BUNDLE_BASE64>>", base64: true})
}

func (m *machine) prepareKernel() {
	m.files = append(m.files,
		file{path: "/etc/modules-load.d/kubernetes.conf", mode: 0o644, text: "overlay\nbr_netfilter\n"},
		file{path: "/etc/sysctl.d/99-kubernetes.conf", mode: 0o644, text: `net.ipv4.ip_forward = 1
net.ipv6.conf.all.forwarding = 1
net.bridge.bridge-nf-call-iptables = 1
net.bridge.bridge-nf-call-ip6tables = 1
`})
	// cloud-init writes these files after systemd has read them, so apply them now.
	m.preStartCommands = append(m.preStartCommands, []string{"modprobe", "-a", "overlay", "br_netfilter"},
		[]string{"sysctl", "--system"})
}

// addProxy sets the proxies for units. The file may contain a password, so only root can read it.
func (m *machine) addProxy(o Options, units ...string) {
	if !o.hasProxy() {
		return
	}
	var lines strings.Builder
	for _, variable := range []struct{ name, value string }{
		{"HTTP_PROXY", o.HTTPProxy}, {"HTTPS_PROXY", o.HTTPSProxy}, {"NO_PROXY", o.NoProxy},
	} {
		if variable.value != "" {
			// curl ignores HTTP_PROXY in upper case.
			fmt.Fprintf(&lines, "%s=%s\n%s=%s\n", variable.name, variable.value, strings.ToLower(variable.name), variable.value)
		}
	}
	m.files = append(m.files, file{path: proxyPath, mode: 0o600, text: lines.String()})
	for _, name := range units {
		m.units = append(m.units, unit{name: name, dropInName: "90-machinist-proxy.conf",
			dropIn: "[Service]\nEnvironmentFile=" + proxyPath + "\n"})
	}
}
