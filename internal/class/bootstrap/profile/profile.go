// Package profile generates user-data templates. A template turns a machine with an unmodified image of a Linux
// distribution into a node. A profile is a set of files, units, packages and commands. The package writes this set as a
// cloud-config or as an Ignition config. The package reads no files and calls no servers: its output depends only on
// the options.
//
// The templates contain placeholders of package bootstrap. For each machine, Machinist replaces these placeholders
// with values.
package profile

import (
	"fmt"
	"slices"
	"strings"

	"machinist.dev/machinist/internal/class/bootstrap"
)

// distribution describes in what respects a profile differs from the other profiles.
type distribution struct {
	write func(*machine) ([]byte, error)
	// The fields runtime and kubelet are the defaults of the options with these names.
	runtime Runtime
	kubelet KubeletSource
	// runtimePackage is the package of containerd. It is empty if packages cannot be installed.
	runtimePackage string
	// tools contains the packages with the programs that the kubelet and its plugins call. The kubelet's own
	// package depends on these packages. If the kubelet is downloaded instead, they must be installed separately.
	tools []string
	// packaging describes the package manager. It is nil if packages cannot be installed.
	packaging *packaging
	// configuresRuntime is true if the image's containerd does not read a configuration from /etc by default, so that the
	// profile must configure it.
	configuresRuntime bool
	// join adds the files and units with which the machine joins the cluster. It is set only in profiles that do
	// not configure the kubelet.
	join func(*machine, Options, distribution)
	// settingsSource explains where the kubelet gets its settings if the profile does not configure it.
	settingsSource string
	// agent is the program that joins the machine to a k3s or RKE2 cluster. It is nil for other profiles.
	agent *agent
	// settings contains fields of the KubeletConfiguration that only this distribution needs.
	settings map[string]any
}

// resolvedSettings make the kubelet read the name servers from the file of systemd-resolved. On a machine with
// systemd-resolved, /etc/resolv.conf contains only the address of the local resolver, which pods cannot reach.
var resolvedSettings = map[string]any{"resolvConf": resolvedPath}

const resolvedPath = "/run/systemd/resolve/resolv.conf"

var distributions = map[string]distribution{
	"debian": {write: cloudConfig, runtime: RuntimePackage, kubelet: KubeletPackages, runtimePackage: "containerd",
		tools: []string{"ca-certificates", "conntrack", "curl", "ethtool", "iptables", "socat"}, packaging: &apt},
	"ubuntu": {write: cloudConfig, runtime: RuntimePackage, kubelet: KubeletPackages, runtimePackage: "containerd",
		tools: []string{"ca-certificates", "conntrack", "curl", "ethtool", "iptables", "socat"}, packaging: &apt,
		settings: resolvedSettings},
	"rhel": {write: cloudConfig, runtime: RuntimePackage, kubelet: KubeletPackages, runtimePackage: "containerd.io",
		tools: []string{"conntrack-tools", "ethtool", "iptables", "socat"}, packaging: &dnf},
	"flatcar": {write: ignition, runtime: RuntimePreinstalled, kubelet: KubeletURL, configuresRuntime: true,
		settings: map[string]any{
			"resolvConf": resolvedPath,
			// The default directory is below /usr, which is read-only.
			"volumePluginDir": "/var/lib/kubelet/volumeplugins",
		}},
	"preinstalled": {write: cloudConfig, runtime: RuntimePreinstalled, kubelet: KubeletPreinstalled},
	"kubeadm": {write: cloudConfig, runtime: RuntimePreinstalled, join: (*machine).joinByKubeadm,
		settingsSource: "kubeadm reads the kubelet's settings from the cluster's ConfigMap kubelet-config"},
	"k3s": {write: cloudConfig, runtime: RuntimePreinstalled, join: (*machine).startAgent, agent: &k3s,
		settingsSource: "the k3s agent runs its own kubelet, with the settings in /etc/rancher/k3s"},
	"rke2": {write: cloudConfig, runtime: RuntimePreinstalled, join: (*machine).startAgent, agent: &rke2,
		settingsSource: "the RKE2 agent runs its own kubelet, with the settings in /etc/rancher/rke2"},
}

// Names returns the names of all profiles, in the order for lists of profiles.
func Names() []string {
	return []string{"debian", "ubuntu", "flatcar", "rhel", "preinstalled", "kubeadm", "k3s", "rke2"}
}

// file is a file on the machine's disk.
type file struct {
	path string
	mode int
	// text is the content, or its base64 encoding if base64 is true.
	text   string
	base64 bool
	// If append is true, the content is appended to an existing file. Only a cloud-config supports that.
	append bool
}

// unit is a systemd unit.
type unit struct {
	name string
	// text is the whole unit. It is empty if only dropIn is set.
	text string
	// dropIn is the content of a drop-in for the unit, and dropInName is the name of the drop-in file.
	dropIn, dropInName string
	// enabled means that the unit is started now and at each boot.
	enabled bool
	// keepRunning means that a running unit is not restarted, because its configuration has not changed.
	keepRunning bool
}

// machine is the configuration of a machine, independent of the format of the user data.
type machine struct {
	files    []file
	units    []unit
	packages []string
	// aptProxy are the proxies for apt, which the cloud-config sets.
	aptProxy map[string]string
	// The field before contains commands that run before the units are started. The field after contains commands
	// that run afterwards. Only a cloud-config supports commands, because Ignition runs before systemd.
	before, after [][]string
	sshKeys       []string
	setHostname   bool
}

// Render returns the user-data template for the options. Its errors name the flag of `machinist bootstrap render` and
// its value. They never contain passwords or the contents of files.
func Render(o Options) ([]byte, error) {
	d, known := distributions[o.Profile]
	if !known {
		return nil, fmt.Errorf("--profile %q: must be one of %s", o.Profile, strings.Join(Names(), ", "))
	}
	o.setDefaults(d)
	if err := o.validate(d); err != nil {
		return nil, err
	}
	m := &machine{sshKeys: o.SSHKeys, setHostname: o.SetHostname}
	if d.join != nil {
		d.join(m, o, d)
	} else if err := m.joinByKubelet(o, d); err != nil {
		return nil, err
	}
	if err := m.addUserFiles(o); err != nil {
		return nil, err
	}
	template, err := d.write(m)
	if err != nil {
		return nil, err
	}
	// Check that Machinist can render the template for a machine.
	if _, err := bootstrap.Render(template, sample); err != nil {
		return nil, fmt.Errorf("the template cannot be rendered: %w", err)
	}
	return template, nil
}

// sample contains valid values of all placeholders.
var sample = bootstrap.Values{MachineName: "pool-a1b2c", MachineNamespace: "fleet", KubeletVersion: "v1.36.3",
	APIEndpoint: "https://api.example:6443", CABundle: []byte(sampleCA), BootstrapToken: "abcdef.0123456789abcdef"}

const sampleCA = `-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUHQCrQjCiGeoA/ErvQVEl6/KEE1YwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjUxOTQ0MDFaGA8yMTI2MTEwMTE5NDQw
MVowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABAxI
THaoI87TrKNx7Ge7myquVEhVQxw8IuCX5NUdInFj0Rq7Jblbiv0yo/DsfIVx4Kpm
ktrG3PEGcUTJsryYazSjUzBRMB0GA1UdDgQWBBR10PRNxBYCOwF3hh+OnooFxw5P
gzAfBgNVHSMEGDAWgBR10PRNxBYCOwF3hh+OnooFxw5PgzAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIQCGZ03Uw3KPFUhLauqL5m7QsAAQURcLgRNM
RdtpextE0AIgYYMsWlAI83viD3zKaMo/304lG1YYC+j1dNt2tk0JeCo=
-----END CERTIFICATE-----
`

// addUserFiles adds the files and units of the options.
func (m *machine) addUserFiles(o Options) error {
	taken := map[string]bool{"/etc/hostname": o.SetHostname}
	for _, f := range m.allFiles() {
		taken[f.path] = true
	}
	for _, f := range o.Files {
		if taken[f.Path] {
			return fmt.Errorf("--file %s: the profile %s already writes this file, or --file is given twice for it", f.Path, o.Profile)
		}
		added, err := f.file()
		if err != nil {
			return err
		}
		m.files, taken[f.Path] = append(m.files, added), true
	}
	for _, u := range o.Units {
		if taken["/etc/systemd/system/"+u.Name] || slices.ContainsFunc(m.units,
			func(other unit) bool { return other.name == u.Name }) {
			return fmt.Errorf("--unit %s: the profile %s already has this unit, or --unit is given twice for it", u.Name, o.Profile)
		}
		if !isText(u.Content) {
			return fmt.Errorf("--unit %s: the file is empty or is not text in UTF-8", u.Name)
		}
		if !strings.Contains("\n"+string(u.Content), "\n[Install]") {
			return fmt.Errorf("--unit %s: the unit has no [Install] section, so it would never start", u.Name)
		}
		m.units = append(m.units, unit{name: u.Name, text: string(u.Content), enabled: true})
	}
	return nil
}
