package profile

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestKubeletConfigIsMerged(t *testing.T) {
	o := minimalOptions("flatcar")
	o.KubeletConfig = []byte(`{rotateCertificates: true, maxPods: 1000000, resolvConf: /etc/resolv.conf, clusterDomain: other.local,
authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 1m}},
  registerWithTaints: [{key: pool, effect: NoExecute}],
featureGates: {A: true}}`)
	o.FeatureGates = map[string]bool{"B": false}
	got := onMachine(t, "flatcar", render(t, o))[kubeletConfigPath].content
	var config map[string]any
	if err := yaml.UnmarshalStrict([]byte(got), &config); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"maxPods: 1000000\n", "resolvConf: /etc/resolv.conf\n", "clusterDomain: other.local\n",
		"  webhook:\n    cacheTTL: 1m\n    enabled: true\n", "- effect: NoExecute\n  key: pool\n- effect: NoSchedule\n  key: machinist.dev/uninitialized\n",
		"featureGates:\n  A: true\n  B: false\n", "serverTLSBootstrap: true\n", "volumePluginDir: /var/lib/kubelet/volumeplugins\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestKubeletConfigThatConflictsIsRefused(t *testing.T) {
	for config, want := range map[string]string{
		"rotateCertificates: false":         "rotateCertificates is false and must be true",
		"serverTLSBootstrap: false":         "serverTLSBootstrap is false and must be true",
		"registerNode: false":               "registerNode is false and must be true",
		"kind: Pod":                         "kind is Pod and must be KubeletConfiguration",
		"apiVersion: v1":                    "apiVersion is v1 and must be kubelet.config.k8s.io/v1beta1",
		"tlsCertFile: /a":                   "tlsCertFile must not be set",
		"providerID: a":                     "providerID must not be set",
		"registerWithTaints: a":             "registerWithTaints is a, not a list",
		"featureGates: [A]":                 "featureGates is [A], not a map",
		"staticPodURL: <<API>>":             "unknown placeholder <<API>>",
		"staticPodURL: <<BOOTSTRAP_TOKEN>>": "must not contain the bootstrap token",
		"a: 1\na: 2":                        "not a KubeletConfiguration in YAML",
		"- a":                               "not a KubeletConfiguration in YAML",
		"featureGates: {RotateKubeletServerCertificate: false}":                       "RotateKubeletServerCertificate must not be false",
		"registerWithTaints: [{key: machinist.dev/uninitialized, effect: NoExecute}]": "the taint machinist.dev/uninitialized in",
	} {
		o := minimalOptions("debian")
		o.KubeletConfig = []byte(config)
		if _, err := Render(o); err == nil || !strings.Contains(err.Error(), "--kubelet-config") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", config, err, want)
		}
	}
}
