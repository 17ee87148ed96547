package profile

import (
	"cmp"
	"slices"

	"machinist.dev/machinist/api/v1beta1"
)

// agent joins a machine to a k3s or RKE2 cluster. The agent contains its own containerd and kubelet, and prepares the
// kernel.
type agent struct {
	unit, folder string
	// server is the default of the --server flag, or empty if the flag is required.
	server string
}

var (
	k3s = agent{unit: "k3s-agent.service", folder: "/etc/rancher/k3s", server: "<<API_ENDPOINT>>"}
	// rke2 has no default server, because RKE2 servers have a separate port for agents.
	rke2 = agent{unit: "rke2-agent.service", folder: "/etc/rancher/rke2"}
)

func (m *machine) startAgent(o Options, d distribution) {
	m.files = append(m.files, file{path: d.agent.folder + "/config.yaml", mode: 0o600,
		text: "server: " + quoteYAML(cmp.Or(o.Server, d.agent.server)) + "\ntoken: \"<<BOOTSTRAP_TOKEN>>\"\nnode-taint: [" +
			quoteYAML(v1beta1.NodeTaintUninitialized+":NoSchedule") + "]\n"})
	if len(o.Mirrors) > 0 {
		m.files = append(m.files, file{path: d.agent.folder + "/registries.yaml", mode: 0o644, text: registries(o.Mirrors)})
	}
	m.addProxy(o, d.agent.unit)
	m.preStartCommands = append(m.preStartCommands, []string{"systemctl", "daemon-reload"})
	m.units = append(m.units, unit{name: d.agent.unit, enabled: true})
}

func registries(mirrors []Mirror) string {
	text := "mirrors:\n"
	for i, first := range mirrors {
		same := func(m Mirror) bool { return m.Registry == first.Registry }
		if slices.ContainsFunc(mirrors[:i], same) {
			continue
		}
		text += "  " + quoteYAML(first.Registry) + ":\n    endpoint:\n"
		for _, m := range mirrors {
			if same(m) {
				text += "      - " + quoteYAML(m.URL) + "\n"
			}
		}
	}
	return text
}
