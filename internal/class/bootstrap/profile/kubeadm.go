package profile

const joinConfigPath = "/etc/kubernetes/machinist-join.yaml"

// joinByKubeadm makes the machine a node of a cluster that kubeadm made. kubeadm writes the kubelet's kubeconfig and
// configuration, and its package has the kubelet's unit.
func (m *machine) joinByKubeadm(o Options, d distribution) {
	m.files = append(m.files, file{path: joinConfigPath, mode: 0o600, text: "<<KUBEADM_JOIN_CONFIG>>\n"})
	m.prepareKernel()
	m.useProxy(o, "containerd.service", "kubelet.service")
	m.installRuntime(o, d)
	// kubeadm starts the kubelet, but does not enable it.
	m.before = append(m.before, []string{"systemctl", "enable", "kubelet.service"})
	// kubeadm refuses to run without containerd, which may still be restarting.
	m.after = append(m.after, []string{"systemctl", "start", "containerd.service"},
		[]string{"kubeadm", "join", "--config", joinConfigPath})
}
