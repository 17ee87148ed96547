package profile

import (
	"fmt"
	"strings"
)

// containerdConfig uses version 2 of the format, which containerd 1 and 2 can read. It sets bin_dir to /opt/cni/bin,
// where network plugins install their programs, because Debian's containerd has a different default.
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

// installRuntime installs containerd and its configuration. A preinstalled containerd keeps the image's configuration,
// except on Flatcar. If mirrors are used, the image's configuration must set config_path to the directory of the
// mirrors.
func (m *machine) installRuntime(o Options, d distribution) {
	if o.Runtime == RuntimePackage {
		m.packages = append(m.packages, d.runtimePackage)
	}
	if o.Runtime == RuntimePackage || d.configuresRuntime {
		m.files = append(m.files, file{path: "/etc/containerd/config.toml", mode: 0o644, text: containerdConfig})
	}
	m.files = append(m.files, mirrorFiles(o.Mirrors)...)
	// If neither the configuration nor the proxies of a preinstalled containerd change, containerd need not be
	// restarted.
	containerd := unit{name: "containerd.service", enabled: true,
		keepRunning: o.Runtime == RuntimePreinstalled && !d.configuresRuntime && !o.hasProxy()}
	if d.configuresRuntime {
		containerd.dropInName = "90-machinist.conf"
		containerd.dropIn = "[Service]\nExecStart=\nExecStart=/usr/bin/containerd --config /etc/containerd/config.toml\n"
	}
	m.units = append(m.units, containerd)
	m.before = append(m.before, []string{"systemctl", "daemon-reload"})
}

// mirrorFiles returns a file for each registry, in the order in which the registries first occur.
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
			server = "https://registry-1.docker.io" // The images of docker.io are on this server.
		}
		files = append(files, file{path: "/etc/containerd/certs.d/" + registry + "/hosts.toml", mode: 0o644,
			text: fmt.Sprintf("server = %q\n%s", server, hosts[registry])})
	}
	return files
}
