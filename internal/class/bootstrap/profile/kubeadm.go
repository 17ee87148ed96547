package profile

const joinConfigPath = "/etc/kubernetes/machinist-join.yaml"

// joinByKubeadm joins the machine to a kubeadm cluster. kubeadm configures the kubelet, and its package contains the
// kubelet's unit.
func (m *machine) joinByKubeadm(o Options, d distribution) {
	m.files = append(m.files, file{path: joinConfigPath, mode: 0o600, text: "<<KUBEADM_JOIN_CONFIG>>\n"})
	m.prepareKernel()
	m.addProxy(o, "containerd.service", "kubelet.service")
	m.installRuntime(o, d)
	// Neither the kubelet package nor kubeadm enables the unit.
	m.preStartCommands = append(m.preStartCommands, []string{"systemctl", "enable", "kubelet.service"})
	// kubeadm join fails while containerd is down.
	m.postStartCommands = append(m.postStartCommands, []string{"systemctl", "start", "containerd.service"},
		[]string{"kubeadm", "join", "--config", joinConfigPath})
}
