// Package profile composes user-data templates: what makes a plain machine of a distribution a node. A profile is a
// composition of files, units, packages and commands, which one of two writers turns into a cloud-config or an Ignition
// config. The package reads no file and asks nobody: options in, bytes out.
//
// A template has the placeholders of package bootstrap, which Machinist replaces for each machine.
package profile

import (
	"fmt"
	"slices"
	"strings"

	"machinist.dev/machinist/internal/class/bootstrap"
)

// distribution is what profiles differ in.
type distribution struct {
	write func(*machine) ([]byte, error)
	// runtime and kubelet are the defaults of the options.
	runtime Runtime
	kubelet KubeletSource
	// runtimePackage is the package of containerd; empty where nothing can be installed.
	runtimePackage string
	// tools are the packages of programs that a kubelet and its plugins call, and that the kubelet's own package would
	// bring.
	tools []string
	// packaging is how packages come; nil where none can.
	packaging *packaging
	// configuresRuntime says that the image has a containerd that reads no configuration of the machine by itself.
	configuresRuntime bool
	// join makes the machine a node where the profile brings neither the kubelet nor its configuration.
	join func(*machine, Options, distribution)
	// kubeletSettings says where the kubelet has its settings from in such a profile.
	kubeletSettings string
	// agent is what joins a cluster of k3s or RKE2; nil for other profiles.
	agent *agent
	// kubelet's settings that only this distribution needs.
	settings map[string]any
}

// resolved is where systemd-resolved keeps the name servers themselves. /etc/resolv.conf leads to its own address on
// the machine, which pods cannot ask.
var resolved = map[string]any{"resolvConf": resolvedPath}

const resolvedPath = "/run/systemd/resolve/resolv.conf"

var distributions = map[string]distribution{
	"debian": {write: cloudConfig, runtime: RuntimePackage, kubelet: KubeletPackages, runtimePackage: "containerd",
		tools: []string{"ca-certificates", "conntrack", "curl", "ethtool", "iptables", "socat"}, packaging: &apt},
	"ubuntu": {write: cloudConfig, runtime: RuntimePackage, kubelet: KubeletPackages, runtimePackage: "containerd",
		tools: []string{"ca-certificates", "conntrack", "curl", "ethtool", "iptables", "socat"}, packaging: &apt,
		settings: resolved},
	"rhel": {write: cloudConfig, runtime: RuntimePackage, kubelet: KubeletPackages, runtimePackage: "containerd.io",
		tools: []string{"conntrack-tools", "ethtool", "iptables", "socat"}, packaging: &dnf},
	"flatcar": {write: ignition, runtime: RuntimePreinstalled, kubelet: KubeletURL, configuresRuntime: true,
		settings: map[string]any{
			"resolvConf": resolved["resolvConf"],
			// The default is below /usr, which is read-only.
			"volumePluginDir": "/var/lib/kubelet/volumeplugins",
		}},
	"preinstalled": {write: cloudConfig, runtime: RuntimePreinstalled, kubelet: KubeletPreinstalled},
	"kubeadm": {write: cloudConfig, runtime: RuntimePreinstalled, join: (*machine).joinByKubeadm,
		kubeletSettings: "kubeadm takes the kubelet's settings from the cluster's kubelet-config"},
	"k3s": {write: cloudConfig, runtime: RuntimePreinstalled, join: (*machine).startAgent, agent: &k3s,
		kubeletSettings: "the agent of k3s has a kubelet of its own, with the settings in /etc/rancher/k3s"},
	"rke2": {write: cloudConfig, runtime: RuntimePreinstalled, join: (*machine).startAgent, agent: &rke2,
		kubeletSettings: "the agent of RKE2 has a kubelet of its own, with the settings in /etc/rancher/rke2"},
}

// Names are the names of all profiles, in the order in which people read them.
func Names() []string {
	return []string{"debian", "ubuntu", "flatcar", "rhel", "preinstalled", "kubeadm", "k3s", "rke2"}
}

// file is a file on the machine's disk.
type file struct {
	path string
	mode int
	// text is the content. With base64 it is the content's encoding.
	text   string
	base64 bool
	// append adds the content to what is there. Only a cloud-config can.
	append bool
}

// unit is a unit of systemd.
type unit struct {
	name string
	// text is the whole unit; empty where only dropIn is set.
	text string
	// dropIn is what the unit gets beside its own text, and dropInName the name of that file.
	dropIn, dropInName string
	// enabled starts the unit now and at each boot.
	enabled bool
	// running says that one that runs already has all that it needs to know.
	running bool
}

// machine is what user data makes of a machine, whatever the format.
type machine struct {
	files    []file
	units    []unit
	packages []string
	// aptProxy are the proxies for apt, which takes them from the cloud-config.
	aptProxy map[string]string
	// before and after are commands around the start of units. Only a cloud-config has them: Ignition runs before systemd.
	before, after [][]string
	sshKeys       []string
	setHostname   bool
}

// Render returns the user-data template that the options ask for. An error names the flag of `machinist bootstrap
// render` and the value, never the content of a file and no password.
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
	if err := m.addOwn(o); err != nil {
		return nil, err
	}
	template, err := d.write(m)
	if err != nil {
		return nil, err
	}
	// What passes here can be rendered for a machine.
	if _, err := bootstrap.Render(template, sample); err != nil {
		return nil, fmt.Errorf("the template cannot be rendered: %w", err)
	}
	return template, nil
}

// sample are values for a trial.
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

// addOwn adds the files and units that the options bring.
func (m *machine) addOwn(o Options) error {
	taken := map[string]bool{"/etc/hostname": o.SetHostname}
	for _, f := range m.allFiles() {
		taken[f.path] = true
	}
	for _, f := range o.Files {
		if taken[f.Path] {
			return fmt.Errorf("--file %s: the profile %s writes this file itself, or it is given twice", f.Path, o.Profile)
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
			return fmt.Errorf("--unit %s: the profile %s has this unit itself, or it is given twice", u.Name, o.Profile)
		}
		if !isText(u.Content) {
			return fmt.Errorf("--unit %s: the file is empty or is not text in UTF-8", u.Name)
		}
		if !strings.Contains("\n"+string(u.Content), "\n[Install]") {
			return fmt.Errorf("--unit %s: it has no section [Install], so it would never start", u.Name)
		}
		m.units = append(m.units, unit{name: u.Name, text: string(u.Content), enabled: true})
	}
	return nil
}
