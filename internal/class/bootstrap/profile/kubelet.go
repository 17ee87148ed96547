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

// versionPlaceholder is replaced by the machine's version in the kubelet's URL.
const versionPlaceholder = "<<" + bootstrap.KubeletVersion + ">>"

type packaging struct {
	script  string
	keyPath string
	proxy   func(*machine, Options)
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
	// dnf has one proxy for all URLs. dnf.conf has only the section [main], so an appended line belongs to it.
	dnf = packaging{script: dnfScript, keyPath: "/etc/pki/rpm-gpg/kubernetes.asc", proxy: func(m *machine, o Options) {
		m.files = append(m.files, file{path: "/etc/dnf/dnf.conf", mode: 0o600, append: true,
			text: "\nproxy=" + cmp.Or(o.HTTPSProxy, o.HTTPProxy) + "\n"})
	}}
)

// kubeletUnit contains no settings that differ between machines or images. These settings are in a drop-in, whose
// name sorts after the drop-ins of the kubeadm package.
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

// linkResolvConf links resolvConfPath to a file with name servers that pods can reach, for distributions whose images
// may or may not use systemd-resolved.
const linkResolvConf = `ExecStartPre=/bin/sh -c 'file=/etc/resolv.conf; ` +
	`if grep -qs "^nameserver 127.0.0.53" $$file; then file=` + resolvedPath + `; fi; ln -sfn $$file ` + resolvConfPath + `'
`

func (m *machine) installKubelet(o Options, d distribution) {
	binary, prepare := o.KubeletBinary, ""
	switch o.Kubelet {
	case KubeletPackages:
		binary = "/usr/bin/kubelet"
		m.files = append(m.files,
			file{path: d.packaging.keyPath, mode: 0o644, text: string(o.PackageRepositoryKey)},
			file{path: "/etc/machinist/package-repository", mode: 0o644, text: o.PackageRepository + "\n"},
			file{path: installPath, mode: 0o755, text: d.packaging.script})
		// The package may start the kubelet itself, so install it before the unit starts.
		m.preStartCommands = append(m.preStartCommands, []string{installPath})
	case KubeletURL:
		binary = "/opt/bin/kubelet"
		var sums strings.Builder
		for _, version := range slices.Sorted(maps.Keys(o.KubeletSHA256)) {
			fmt.Fprintf(&sums, "%s %s\n", strings.ToLower(o.KubeletSHA256[version]), version)
		}
		m.packages = append(m.packages, d.tools...)
		m.files = append(m.files,
			// An agent that updates the kubelet needs the URLs of other versions.
			file{path: "/etc/machinist/kubelet-url", mode: 0o644,
				text: strings.ReplaceAll(o.KubeletURL, versionPlaceholder, "{version}") + "\n"},
			file{path: "/etc/machinist/kubelet-sha256", mode: 0o644, text: sums.String()},
			file{path: installPath, mode: 0o755, text: downloadScript})
		// The unit downloads the kubelet before it starts, so systemd retries a failed download.
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
