package profile

import (
	"strings"
	"testing"
)

const (
	testKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE1hY2hpbmlzdE1hY2hpbmlzdE1hY2hpbmlzdE1hY2hpbmk= someone"
	pgpKey  = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nbm90IGEga2V5\n-----END PGP PUBLIC KEY BLOCK-----\n"
)

var testSum = strings.Repeat("0123456789abcdef", 4)

func minimalOptions(profile string) Options {
	o := Options{Profile: profile}
	switch profile {
	case "debian", "ubuntu", "rhel":
		o.PackageRepository, o.PackageRepositoryKey = "https://packages.example/{minor}/", []byte(pgpKey)
	case "flatcar":
		o.KubeletURL = "https://files.example/<<KUBELET_VERSION>>/kubelet"
		o.KubeletSHA256 = map[string]string{"v1.36.3": testSum}
	case "rke2":
		o.Server = "https://rke2.example:9345"
	}
	return o
}

func allOptions(profile string) Options {
	o := minimalOptions(profile)
	o.Mirrors = []Mirror{{"docker.io", "https://mirror.example"}, {"docker.io", "https://second.example/v2"},
		{"registry.example:5000", "http://10.0.0.1:5001"}}
	o.HTTPProxy, o.HTTPSProxy, o.NoProxy = "http://user:pa%40ss@proxy.example:3128", "http://proxy.example:3128", "10.0.0.0/8,.svc,::1"
	o.SSHKeys, o.SetHostname = []string{testKey}, true
	if configuresKubelet(profile) {
		o.KubeletConfig = []byte("maxPods: 1000000\nregisterWithTaints: [{key: pool, value: 'y', effect: NoExecute}]\nfeatureGates: {Alpha: false}\n")
		o.FeatureGates, o.ClusterDNS = map[string]bool{"SomeGate": true}, []string{"10.96.0.10", "fd00::a"}
		o.ClientCA = []byte(sampleCA)
	}
	if profile == "k3s" {
		o.Server = "https://k3s.example:6443"
	}
	o.Files = []File{
		{Path: "/etc/agent/config", Content: []byte("name: <<MACHINE_NAME>>\ntoken: <<BOOTSTRAP_TOKEN>>\n")},
		{Path: "/opt/agent/run", Content: []byte("#!/bin/sh\n\n\techo \"ü\" '\\' # comment\n"), Executable: true},
		{Path: "/etc/agent/binary", Content: []byte{0, 0xff, '\n'}},
		{Path: "/etc/agent/no-newline", Content: []byte("  indented: \"yes\"\r\nno")},
		{Path: "/etc/agent/empty"},
	}
	o.Units = []Unit{{Name: "agent.service", Content: []byte("[Service]\nExecStart=/opt/agent/run <<MACHINE_NAME>>\n[Install]\nWantedBy=multi-user.target\n")}}
	return o
}

// configuresKubelet reports whether the profile writes the kubelet's configuration. If kubeadm or an agent writes this
// configuration instead, Render refuses the kubelet options.
func configuresKubelet(profile string) bool { return distributions[profile].join == nil }

func render(t *testing.T, o Options) []byte {
	t.Helper()
	template, err := Render(o)
	if err != nil {
		t.Fatalf("%s: %v", o.Profile, err)
	}
	return template
}
