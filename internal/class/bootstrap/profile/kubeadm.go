package profile

const joinConfigPath = "/etc/kubernetes/machinist-join.yaml"

// joinByKubeadm joins the machine to a kubeadm cluster. kubeadm writes the kubelet's kubeconfig and configuration, and
// its package contains the kubelet's unit.
func (m *machine) joinByKubeadm(o Options, d distribution) {
	m.files = append(m.files, file{path: joinConfigPath, mode: 0o600, text: "<<KUBEADM_JOIN_CONFIG>>\n"})
	m.prepareKernel()
	m.addProxy(o, "containerd.service", "kubelet.service")
	m.installRuntime(o, d)
	// The kubelet package does not enable the kubelet's unit, and kubeadm only starts the unit.
	m.before = append(m.before, []string{"systemctl", "enable", "kubelet.service"})
	// kubeadm join fails while containerd is down, so wait until containerd has restarted.
	m.after = append(m.after, []string{"systemctl", "start", "containerd.service"},
		[]string{"kubeadm", "join", "--config", joinConfigPath})
}
