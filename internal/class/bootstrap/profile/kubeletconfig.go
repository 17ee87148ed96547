package profile

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
)

const kubeletAPIVersion, kubeletKind = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"

// mustBe are fields without which a machine does not join, or its node is not safe. The user's configuration may repeat
// them.
var mustBe = map[string]any{"apiVersion": kubeletAPIVersion, "kind": kubeletKind, "registerNode": true,
	"rotateCertificates": true, "serverTLSBootstrap": true}

// mustNotBe are fields that would make another field, or another process, of no effect.
var mustNotBe = map[string]string{
	"tlsCertFile":       "the kubelet asks the cluster for its serving certificate",
	"tlsPrivateKeyFile": "the kubelet asks the cluster for its serving certificate",
	"providerID":        "one for all machines is none, and Machinist or the cloud controller sets each machine's",
}

// configureKubelet writes the KubeletConfiguration: the profile's, with the user's fields in place of its own.
func (m *machine) configureKubelet(o Options, d distribution) error {
	config := map[string]any{
		"apiVersion": kubeletAPIVersion,
		"kind":       kubeletKind,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": clientCAPath},
		},
		"authorization":            map[string]any{"mode": "Webhook"},
		"cgroupDriver":             "systemd",
		"clusterDomain":            "cluster.local",
		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
		"rotateCertificates":       true,
		"serverTLSBootstrap":       true,
		"resolvConf":               resolvConfPath,
	}
	maps.Copy(config, d.settings)
	own := map[string]any{}
	if o.KubeletConfig != nil {
		if err := readKubeletConfig(o, own); err != nil {
			return err
		}
	}
	taints, err := withUninitialized(own["registerWithTaints"])
	if err != nil {
		return err
	}
	merge(config, own)
	config["registerWithTaints"] = taints
	if len(o.ClusterDNS) > 0 {
		if own["clusterDNS"] != nil {
			return fmt.Errorf("--cluster-dns %v: the file of --kubelet-config has clusterDNS, too", o.ClusterDNS)
		}
		config["clusterDNS"] = o.ClusterDNS
	}
	features, _ := config["featureGates"].(map[string]any)
	for _, feature := range slices.Sorted(maps.Keys(o.FeatureGates)) {
		if _, twice := features[feature]; twice {
			return fmt.Errorf("--feature-gates %s: the file of --kubelet-config has it in featureGates, too", feature)
		}
		if features == nil {
			features = map[string]any{}
		}
		features[feature] = o.FeatureGates[feature]
	}
	if features["RotateKubeletServerCertificate"] == false {
		return fmt.Errorf("--kubelet-config or --feature-gates: featureGates.RotateKubeletServerCertificate must not be false: " +
			"Machinist approves the certificates that kubelets ask for")
	}
	if features != nil {
		config["featureGates"] = features
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("--kubelet-config: %w", err)
	}
	m.files = append(m.files, file{path: kubeletConfigPath, mode: 0o644, text: string(text)})
	return nil
}

// readKubeletConfig reads the user's configuration, and refuses what contradicts a profile.
func readKubeletConfig(o Options, own map[string]any) error {
	const flag = "--kubelet-config"
	if err := yaml.UnmarshalStrict(o.KubeletConfig, &own); err != nil {
		return fmt.Errorf("%s: the file is not a KubeletConfiguration in YAML: %w", flag, err)
	}
	for _, field := range slices.Sorted(maps.Keys(own)) {
		if want, fixed := mustBe[field]; fixed && own[field] != want {
			return fmt.Errorf("%s: %s is %v and must be %v", flag, field, own[field], want)
		}
		if why, refused := mustNotBe[field]; refused {
			return fmt.Errorf("%s: %s must not be set: %s", flag, field, why)
		}
	}
	if _, isMap := own["featureGates"].(map[string]any); own["featureGates"] != nil && !isMap {
		return fmt.Errorf("%s: featureGates is %v, not a map of names and booleans", flag, own["featureGates"])
	}
	if bootstrap.NeedsToken(o.KubeletConfig) {
		return fmt.Errorf("%s: everybody on the machine can read the file, so the bootstrap token cannot be in it", flag)
	}
	if unknown := bootstrap.Unknown(o.KubeletConfig); len(unknown) > 0 {
		return fmt.Errorf("%s: unknown placeholder %s; known are <<%s>>", flag, unknown[0],
			strings.Join(bootstrap.Placeholders(), ">>, <<"))
	}
	return nil
}

// withUninitialized returns the user's taints and the one that keeps pods away until Machinist has put the machine's
// labels and taints on the node.
func withUninitialized(own any) ([]any, error) {
	ours := map[string]any{"key": v1beta1.NodeTaintUninitialized, "effect": "NoSchedule"}
	taints, isList := own.([]any)
	if own != nil && !isList {
		return nil, fmt.Errorf("--kubelet-config: registerWithTaints is %v, not a list", own)
	}
	for _, taint := range taints {
		fields, _ := taint.(map[string]any)
		switch {
		case reflect.DeepEqual(fields, ours):
			return taints, nil
		case fields["key"] == v1beta1.NodeTaintUninitialized:
			return nil, fmt.Errorf("--kubelet-config: registerWithTaints has %s with other values than the effect NoSchedule alone: "+
				"Machinist takes off that one", v1beta1.NodeTaintUninitialized)
		}
	}
	return append(slices.Clone(taints), ours), nil
}

// merge puts fields into others, maps into maps.
func merge(into, from map[string]any) {
	for key, value := range from {
		inner, isMap := value.(map[string]any)
		if base, both := into[key].(map[string]any); both && isMap {
			merge(base, inner)
			continue
		}
		into[key] = value
	}
}
