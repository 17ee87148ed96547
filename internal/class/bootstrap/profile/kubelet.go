package profile

import (
	"cmp"
	_ "embed" // for the scripts
	"fmt"
	"maps"
	"slices"
	"strings"

	"machinist.dev/machinist/internal/class/bootstrap"
)

//go:embed scripts/download.sh
var downloadScript string

//go:embed scripts/apt.sh
var aptScript string

//go:embed scripts/dnf.sh
var dnfScript string

// versionPlaceholder is replaced with the machine's version in the kubelet's URL.
const versionPlaceholder = "<<" + bootstrap.KubeletVersion + ">>"

// packaging describes how a package manager installs packages.
type packaging struct {
	// script installs the kubelet package of the machine's version.
	script string
	// keyPath is the path of the repository's key on the machine.
	keyPath string
	// proxy configures the package manager to use the proxies.
	proxy func(*machine, Options)
}

var (
	apt = packaging{script: aptScript, keyPath: "/etc/apt/keyrings/kubernetes.asc", proxy: func(m *machine, o Options) {
		m.aptProxy = map[string]string{}
		if o.HTTPProxy != "" {
			m.aptProxy["http_proxy"] = o.HTTPProxy
		}
		if o.HTTPSProxy != "" {
			m.aptProxy["https_proxy"] = o.HTTPSProxy
		}
	}}
	// dnf has one proxy setting for all URLs. The section [main] is the only section of dnf.conf, so an appended
	// line belongs to this section.
	dnf = packaging{script: dnfScript, keyPath: "/etc/pki/rpm-gpg/kubernetes.asc", proxy: func(m *machine, o Options) {
		m.files = append(m.files, file{path: "/etc/dnf/dnf.conf", mode: 0o600, append: true,
			text: "\nproxy=" + cmp.Or(o.HTTPSProxy, o.HTTPProxy) + "\n"})
	}}
)

// kubeletUnit is the kubelet's unit. All settings that differ between machines or images are in a drop-in. systemd
// reads this drop-in after the drop-ins of the kubeadm package, because drop-ins are sorted by name.
const kubeletUnit = `[Unit]
Description=Kubelet
Wants=network-online.target
After=network-online.target containerd.service
StartLimitIntervalSec=0

[Service]
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
`

// linkResolvConf links resolvConfPath to the file that lists name servers that pods can reach. The link is needed
// for distributions in which some images use systemd-resolved and others do not.
const linkResolvConf = `ExecStartPre=/bin/sh -c 'file=/etc/resolv.conf; ` +
	`if grep -qs "^nameserver 127.0.0.53" $$file; then file=` + resolvedPath + `; fi; ln -sfn $$file ` + resolvConfPath + `'
`

// installKubelet installs the kubelet and its unit.
func (m *machine) installKubelet(o Options, d distribution) {
	binary, prepare := o.KubeletBinary, ""
	switch o.Kubelet {
	case KubeletPackages:
		binary = "/usr/bin/kubelet"
		m.files = append(m.files,
			file{path: d.packaging.keyPath, mode: 0o644, text: string(o.PackageRepositoryKey)},
			file{path: "/etc/machinist/package-repository", mode: 0o644, text: o.PackageRepository + "\n"},
			file{path: installPath, mode: 0o755, text: d.packaging.script})
		// Install the package before the unit starts. The package itself may start the kubelet, so the installation
		// script cannot be part of the kubelet's unit.
		m.before = append(m.before, []string{installPath})
	case KubeletURL:
		binary = "/opt/bin/kubelet"
		var sums strings.Builder
		for _, version := range slices.Sorted(maps.Keys(o.KubeletSHA256)) {
			fmt.Fprintf(&sums, "%s %s\n", strings.ToLower(o.KubeletSHA256[version]), version)
		}
		m.packages = append(m.packages, d.tools...)
		m.files = append(m.files,
			// An agent that updates the kubelet also needs the download URLs of other versions.
			file{path: "/etc/machinist/kubelet-url", mode: 0o644,
				text: strings.ReplaceAll(o.KubeletURL, versionPlaceholder, "{version}") + "\n"},
			file{path: "/etc/machinist/kubelet-sha256", mode: 0o644, text: sums.String()},
			file{path: installPath, mode: 0o755, text: downloadScript})
		// The unit runs the download before it starts the kubelet, so systemd retries a failed download.
		prepare = "TimeoutStartSec=infinity\nExecStartPre=" + installPath + "\n"
	}
	if d.settings["resolvConf"] == nil {
		prepare += linkResolvConf
	}
	proxy := ""
	if o.hasProxy() {
		proxy = "EnvironmentFile=" + proxyPath + "\n"
	}
	m.units = append(m.units, unit{name: "kubelet.service", text: kubeletUnit, enabled: true,
		dropInName: "90-machinist.conf",
		dropIn: "[Service]\nEnvironmentFile=-" + environmentPath + "\n" + proxy + prepare +
			"ExecStart=\nExecStart=" + binary +
			" --bootstrap-kubeconfig=" + kubeconfigPath + " --kubeconfig=/var/lib/kubelet/kubeconfig --config=" + kubeletConfigPath +
			" $KUBELET_EXTRA_ARGS\n"})
}
