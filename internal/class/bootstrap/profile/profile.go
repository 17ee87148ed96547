// Package profile generates user-data templates that turn a machine with an unmodified Linux image into a node. A
// profile is a set of files, units, packages and commands, which is written as a cloud-config or an Ignition config.
// The output depends only on the options: the package reads no files and calls no servers.
//
// Machinist replaces the placeholders of a template (package bootstrap) for each machine.
package profile

import (
	"fmt"
	"slices"
	"strings"

	"machinist.dev/machinist/internal/class/bootstrap"
)

type distribution struct {
	write          func(*machine) ([]byte, error)
	runtime        Runtime
	kubelet        KubeletSource
	runtimePackage string
	// tools are the packages that the kubelet and its plugins need. The kubelet's package installs these packages as
	// dependencies, but a downloaded kubelet does not.
	tools     []string
	packaging *packaging
	// configuresRuntime means that the profile configures containerd, because the image's containerd reads no
	// configuration from /etc.
	configuresRuntime bool
	// join is the function that adds the files and units for joining the cluster. It is nil if the profile configures
	// the kubelet, which then joins without a tool.
	join func(*machine, Options, distribution)
	// settingsSource says where the kubelet gets its settings if the profile does not configure it.
	settingsSource string
	agent          *agent
	settings       map[string]any
}

// resolvedSettings make the kubelet read the name servers of systemd-resolved. /etc/resolv.conf would contain only the
// local resolver, which pods cannot reach.
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

// Names returns the names of all profiles, in the order of lists.
func Names() []string {
	return []string{"debian", "ubuntu", "flatcar", "rhel", "preinstalled", "kubeadm", "k3s", "rke2"}
}

type file struct {
	path string
	mode int
	// text is the content. base64 means that text is encoded in base64.
	text   string
	base64 bool
	// append adds the content to an existing file, which only a cloud-config supports.
	append bool
}

type unit struct {
	name               string
	text               string
	dropIn, dropInName string
	enabled            bool
	// keepRunning does not restart a running unit, whose configuration has not changed.
	keepRunning bool
}

// machine lists what a profile writes to a machine, independent of the format of the user data.
type machine struct {
	files    []file
	units    []unit
	packages []string
	aptProxy map[string]string
	// preStartCommands holds the commands that run before the units start, and postStartCommands holds the commands
	// that run afterwards. Only a cloud-config supports commands, because Ignition runs before systemd.
	preStartCommands, postStartCommands [][]string
	sshKeys                             []string
	setHostname                         bool
}

// Render returns the user-data template for the options. Errors name the flag of `machinist bootstrap render` and its
// value, but no passwords or contents of files.
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
	// Check that Machinist can render the template.
	if _, err := bootstrap.Render(template, sample); err != nil {
		return nil, fmt.Errorf("the template cannot be rendered: %w", err)
	}
	return template, nil
}

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
