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

// versionPlaceholder stands for the machine's version in the URL of the kubelet.
const versionPlaceholder = "<<" + bootstrap.KubeletVersion + ">>"

// packaging is how a package manager gets packages.
type packaging struct {
	// script installs the kubelet of the machine's version.
	script string
	// keyPath is where the repository's key is.
	keyPath string
	// proxy lets the package manager use the proxies.
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
	// dnf has one proxy for all. Its [main] is the only section of the file, so that a line at the end belongs to it.
	dnf = packaging{script: dnfScript, keyPath: "/etc/pki/rpm-gpg/kubernetes.asc", proxy: func(m *machine, o Options) {
		m.files = append(m.files, file{path: "/etc/dnf/dnf.conf", mode: 0o600, append: true,
			text: "\nproxy=" + cmp.Or(o.HTTPSProxy, o.HTTPProxy) + "\n"})
	}}
)

// kubeletUnit starts the kubelet. What differs between machines and images is in the drop-in, which also comes after
// those of kubeadm's package.
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

// linkResolvConf leads resolvConfPath to the file with name servers that pods can ask, where images of a distribution
// differ in whether that is systemd-resolved's.
const linkResolvConf = `ExecStartPre=/bin/sh -c 'file=/etc/resolv.conf; ` +
	`if grep -qs "^nameserver 127.0.0.53" $$file; then file=` + resolvedPath + `; fi; ln -sfn $$file ` + resolvConfPath + `'
`

// installKubelet brings the kubelet and its unit.
func (m *machine) installKubelet(o Options, d distribution) {
	binary, prepare := o.KubeletBinary, ""
	switch o.Kubelet {
	case KubeletPackages:
		binary = "/usr/bin/kubelet"
		m.files = append(m.files,
			file{path: d.packaging.keyPath, mode: 0o644, text: string(o.PackageRepositoryKey)},
			file{path: "/etc/machinist/package-repository", mode: 0o644, text: o.PackageRepository + "\n"},
			file{path: installPath, mode: 0o755, text: d.packaging.script})
		// The package may start the kubelet, so that the kubelet's own unit cannot wait for the package.
		m.before = append(m.before, []string{installPath})
	case KubeletURL:
		binary = "/opt/bin/kubelet"
		var sums strings.Builder
		for _, version := range slices.Sorted(maps.Keys(o.KubeletSHA256)) {
			fmt.Fprintf(&sums, "%s %s\n", strings.ToLower(o.KubeletSHA256[version]), version)
		}
		m.packages = append(m.packages, d.tools...)
		m.files = append(m.files,
			// An agent that updates the kubelet needs the URL for other versions, too.
			file{path: "/etc/machinist/kubelet-url", mode: 0o644,
				text: strings.ReplaceAll(o.KubeletURL, versionPlaceholder, "{version}") + "\n"},
			file{path: "/etc/machinist/kubelet-sha256", mode: 0o644, text: sums.String()},
			file{path: installPath, mode: 0o755, text: downloadScript})
		// A download that fails is tried again with the unit, which runs it before the kubelet.
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
