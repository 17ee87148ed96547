package host

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	userdata "machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/internal/class/bootstrap/profile"
)

// notSimulated lists unsupported profiles with the reason.
var notSimulated = map[string]string{
	"flatcar": "a host does not read Ignition",
	"kubeadm": "kubeadm writes the kubelet's files, and a host has no kubeadm",
	"k3s":     "the agent requests its certificates from a supervisor, and there is none",
	"rke2":    "the agent requests its certificates from a supervisor, and there is none",
}

// TestHostReadsEveryCloudConfigProfile checks that the host finds the same API server, token, taint and version in
// every profile.
func TestHostReadsEveryCloudConfigProfile(t *testing.T) {
	values := userdata.Values{MachineName: "m", MachineNamespace: "n", KubeletVersion: "v1.35.2",
		APIEndpoint: "https://api.example:6443", CABundle: testCA(), BootstrapToken: "abcdef.0123456789abcdef"}
	key := []byte("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nbm8=\n-----END PGP PUBLIC KEY BLOCK-----\n")
	simulated := map[string]profile.Options{
		"debian":       {PackageRepository: "https://p.example/", PackageRepositoryKey: key},
		"ubuntu":       {PackageRepository: "https://p.example/", PackageRepositoryKey: key},
		"rhel":         {PackageRepository: "https://p.example/", PackageRepositoryKey: key, HTTPProxy: "http://proxy.example:3128"},
		"preinstalled": {},
	}
	for _, name := range profile.Names() {
		o, ok := simulated[name]
		if (notSimulated[name] != "") == ok {
			t.Fatalf("profile %s must be either in simulated or in notSimulated", name)
		}
		if !ok {
			continue
		}
		o.Profile = name
		template, err := profile.Render(o)
		if err != nil {
			t.Fatal(err)
		}
		data, err := userdata.Render(template, values)
		if err != nil {
			t.Fatal(err)
		}
		b, notes, err := parseBootstrap(Spec{UserData: data})
		if err != nil || len(notes) != 1 {
			t.Fatalf("%s: %v %q", name, err, notes)
		}
		if b.server != values.APIEndpoint || b.token != values.BootstrapToken || b.version != values.KubeletVersion ||
			!b.serverTLS || string(b.caPEM) != string(values.CABundle) || len(b.taints) != 1 ||
			b.taints[0] != (corev1.Taint{Key: "machinist.dev/uninitialized", Effect: corev1.TaintEffectNoSchedule}) {
			t.Errorf("%s: the host read %+v", name, b)
		}
	}
}
