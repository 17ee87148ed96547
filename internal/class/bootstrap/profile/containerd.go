package profile

import (
	"fmt"
	"strings"
)

// containerdConfig uses version 2 of the format, which containerd 1 and 2 can read. bin_dir is where network plugins
// install their programs, because Debian's containerd has another default.
const containerdConfig = `version = 2

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/opt/cni/bin"
conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "/etc/containerd/certs.d"
`

// installRuntime installs and configures containerd. A preinstalled containerd keeps its configuration, except on
// Flatcar. For mirrors, its configuration must set config_path to their directory.
func (m *machine) installRuntime(o Options, d distribution) {
	if o.Runtime == RuntimePackage {
		m.packages = append(m.packages, d.runtimePackage)
	}
	if o.Runtime == RuntimePackage || d.configuresRuntime {
		m.files = append(m.files, file{path: "/etc/containerd/config.toml", mode: 0o644, text: containerdConfig})
	}
	m.files = append(m.files, mirrorFiles(o.Mirrors)...)
	// A preinstalled containerd without changes need not be restarted.
	containerd := unit{name: "containerd.service", enabled: true,
		keepRunning: o.Runtime == RuntimePreinstalled && !d.configuresRuntime && !o.hasProxy()}
	if d.configuresRuntime {
		containerd.dropInName = "90-machinist.conf"
		containerd.dropIn = "[Service]\nExecStart=\nExecStart=/usr/bin/containerd --config /etc/containerd/config.toml\n"
	}
	m.units = append(m.units, containerd)
	m.preStartCommands = append(m.preStartCommands, []string{"systemctl", "daemon-reload"})
}

func mirrorFiles(mirrors []Mirror) []file {
	var registries []string
	hosts := map[string]*strings.Builder{}
	for _, mirror := range mirrors {
		if hosts[mirror.Registry] == nil {
			registries = append(registries, mirror.Registry)
			hosts[mirror.Registry] = &strings.Builder{}
		}
		fmt.Fprintf(hosts[mirror.Registry], "\n[host.%q]\ncapabilities = [\"pull\", \"resolve\"]\n", mirror.URL)
	}
	var files []file
	for _, registry := range registries {
		server := "https://" + registry
		if registry == "docker.io" {
			server = "https://registry-1.docker.io" // This server has the images of docker.io.
		}
		files = append(files, file{path: "/etc/containerd/certs.d/" + registry + "/hosts.toml", mode: 0o644,
			text: fmt.Sprintf("server = %q\n%s", server, hosts[registry])})
	}
	return files
}
