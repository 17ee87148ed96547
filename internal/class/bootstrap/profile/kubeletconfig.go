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

// requiredFields holds fields with a required value. With other values, a machine could not join or would not be
// secure.
var requiredFields = map[string]any{"apiVersion": kubeletAPIVersion, "kind": kubeletKind, "registerNode": true,
	"rotateCertificates": true, "serverTLSBootstrap": true}

// forbiddenFields maps the fields that the user must not set to the reason.
var forbiddenFields = map[string]string{
	"tlsCertFile":       "the kubelet requests its serving certificate from the cluster",
	"tlsPrivateKeyFile": "the kubelet requests its serving certificate from the cluster",
	"providerID":        "all machines would get the same ID, and Machinist or the cloud controller sets the ID of each machine's node",
}

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
	user := map[string]any{}
	if o.KubeletConfig != nil {
		if err := parseKubeletConfig(o, user); err != nil {
			return err
		}
	}
	taints, err := withUninitialized(user["registerWithTaints"])
	if err != nil {
		return err
	}
	merge(config, user)
	config["registerWithTaints"] = taints
	if len(o.ClusterDNS) > 0 {
		if user["clusterDNS"] != nil {
			return fmt.Errorf("--cluster-dns %v: the file of --kubelet-config also sets clusterDNS", o.ClusterDNS)
		}
		config["clusterDNS"] = o.ClusterDNS
	}
	features, _ := config["featureGates"].(map[string]any)
	for _, feature := range slices.Sorted(maps.Keys(o.FeatureGates)) {
		if _, twice := features[feature]; twice {
			return fmt.Errorf("--feature-gates %s: the file of --kubelet-config also sets this feature gate", feature)
		}
		if features == nil {
			features = map[string]any{}
		}
		features[feature] = o.FeatureGates[feature]
	}
	if features["RotateKubeletServerCertificate"] == false {
		return fmt.Errorf("--kubelet-config or --feature-gates: featureGates.RotateKubeletServerCertificate must not be false: " +
			"the kubelet must request its serving certificate from the cluster, where Machinist approves it")
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

// parseKubeletConfig parses the user's configuration into the map. Fields that conflict with the profile are errors.
func parseKubeletConfig(o Options, user map[string]any) error {
	const flag = "--kubelet-config"
	if err := yaml.UnmarshalStrict(o.KubeletConfig, &user); err != nil {
		return fmt.Errorf("%s: the file is not a KubeletConfiguration in YAML: %w", flag, err)
	}
	for _, field := range slices.Sorted(maps.Keys(user)) {
		if want, required := requiredFields[field]; required && user[field] != want {
			return fmt.Errorf("%s: %s is %v and must be %v", flag, field, user[field], want)
		}
		if why, forbidden := forbiddenFields[field]; forbidden {
			return fmt.Errorf("%s: %s must not be set: %s", flag, field, why)
		}
	}
	if _, isMap := user["featureGates"].(map[string]any); user["featureGates"] != nil && !isMap {
		return fmt.Errorf("%s: featureGates is %v, not a map of names and booleans", flag, user["featureGates"])
	}
	if bootstrap.NeedsToken(o.KubeletConfig) {
		return fmt.Errorf("%s: all users of the machine can read the file, so it must not contain the bootstrap token", flag)
	}
	if unknown := bootstrap.UnknownPlaceholders(o.KubeletConfig); len(unknown) > 0 {
		return fmt.Errorf("%s: unknown placeholder %s: the known placeholders are <<%s>>", flag, unknown[0],
			strings.Join(bootstrap.Placeholders(), ">>, <<"))
	}
	return nil
}

// withUninitialized adds the taint machinist.dev/uninitialized to the user's taints. The taint keeps pods away until
// the Node has the machine's labels and taints.
func withUninitialized(userTaints any) ([]any, error) {
	uninitialized := map[string]any{"key": v1beta1.NodeTaintUninitialized, "effect": "NoSchedule"}
	taints, isList := userTaints.([]any)
	if userTaints != nil && !isList {
		return nil, fmt.Errorf("--kubelet-config: registerWithTaints is %v, not a list", userTaints)
	}
	for _, taint := range taints {
		fields, _ := taint.(map[string]any)
		switch {
		case reflect.DeepEqual(fields, uninitialized):
			return taints, nil
		case fields["key"] == v1beta1.NodeTaintUninitialized:
			return nil, fmt.Errorf("--kubelet-config: the taint %s in registerWithTaints must have the effect NoSchedule and "+
				"no value: Machinist removes only that taint", v1beta1.NodeTaintUninitialized)
		}
	}
	return append(slices.Clone(taints), uninitialized), nil
}

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
