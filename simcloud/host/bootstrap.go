package host

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/simcloud/catalog"
)

// These are the files that a machine reads.
const (
	pathKubeconfig    = "/etc/kubernetes/bootstrap-kubeconfig"
	pathKubeletConfig = "/var/lib/kubelet/config.yaml"
	pathDefaults      = "/etc/default/kubelet"
	pathVersion       = "/etc/machine-version"
)

const (
	defaultKubeletVersion = "v1.37.2"
	defaultLeaseDuration  = 40 * time.Second
	defaultStatusCheck    = 10 * time.Second
	defaultStatusReport   = 5 * time.Minute
)

type bootstrap struct {
	server     string // base URL of the API server
	serverName string // server name for the verification of the certificate, instead of the host in the URL
	caPEM      []byte
	token      string

	labels        map[string]string
	taints        []corev1.Taint
	version       string
	leaseDuration time.Duration
	// statusCheck is the interval at which the machine compares the Node with its own state. statusReport is the
	// interval of heartbeats while the Node does not differ.
	statusCheck  time.Duration
	statusReport time.Duration
	// serverTLS requests a serving certificate from the cluster.
	serverTLS bool
}

// parseBootstrap parses the user data. The notes explain which parts were ignored.
func parseBootstrap(spec Spec) (b *bootstrap, notes []string, err error) {
	f, notes, err := parseUserData(spec.UserData)
	if err != nil {
		return nil, notes, err
	}
	notes = append(notes, fmt.Sprintf("user data wrote %s", strings.Join(f.names(), " ")))
	kubeconfig, ok := f[pathKubeconfig]
	if !ok {
		return nil, notes, fmt.Errorf("user data has no %s", pathKubeconfig)
	}
	b = &bootstrap{labels: map[string]string{}, leaseDuration: defaultLeaseDuration, statusCheck: defaultStatusCheck,
		statusReport: defaultStatusReport}
	if err := b.readKubeconfig(kubeconfig); err != nil {
		return nil, notes, fmt.Errorf("%s: %w", pathKubeconfig, err)
	}
	if config, ok := f[pathKubeletConfig]; ok {
		if err := b.readKubeletConfig(config); err != nil {
			return nil, notes, fmt.Errorf("%s: %w", pathKubeletConfig, err)
		}
	}
	defaults := environment(f[pathDefaults])
	ignored, err := b.readExtraArgs(defaults["KUBELET_EXTRA_ARGS"])
	if err != nil {
		return nil, notes, fmt.Errorf("%s: %w", pathDefaults, err)
	}
	if len(ignored) > 0 {
		notes = append(notes, "kubelet flags without effect here: "+strings.Join(ignored, " "))
	}
	for _, candidate := range []string{
		spec.Disk.KubeletVersion, spec.KubeletVersion, strings.TrimSpace(string(f[pathVersion])), defaults["KUBELET_VERSION"],
		spec.Image.KubeletVersion, defaultKubeletVersion,
	} {
		if candidate != "" {
			b.version = "v" + strings.TrimPrefix(candidate, "v")
			break
		}
	}
	if !catalog.IsVersion(b.version) {
		return nil, notes, fmt.Errorf("kubelet version %q must have the form v1.2.3", b.version)
	}
	return b, notes, nil
}

// namedCluster, namedUser and namedContext have all fields of a kubeconfig. A field that changes how the machine
// connects must be refused, not ignored.
type namedCluster struct {
	Name    string         `json:"name"`
	Cluster map[string]any `json:"cluster"`
}

type namedUser struct {
	Name string         `json:"name"`
	User map[string]any `json:"user"`
}

type namedContext struct {
	Name    string `json:"name"`
	Context struct {
		Cluster string `json:"cluster"`
		User    string `json:"user"`
	} `json:"context"`
}

// readKubeconfig reads the kubeconfig with the bootstrap token. readKubeconfig refuses commands and files: user data
// must not make the process run or read anything.
func (b *bootstrap) readKubeconfig(data []byte) error {
	var config struct {
		Kind           string         `json:"kind"`
		CurrentContext string         `json:"current-context"`
		Clusters       []namedCluster `json:"clusters"`
		Users          []namedUser    `json:"users"`
		Contexts       []namedContext `json:"contexts"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	if config.Kind != "Config" {
		return fmt.Errorf("the kind is %q, not Config", config.Kind)
	}
	current := config.CurrentContext
	if current == "" && len(config.Contexts) == 1 {
		current = config.Contexts[0].Name
	}
	for _, c := range config.Contexts {
		if c.Name != current {
			continue
		}
		for _, cluster := range config.Clusters {
			if cluster.Name == c.Context.Cluster {
				if err := b.readCluster(cluster.Cluster); err != nil {
					return fmt.Errorf("cluster %q: %w", cluster.Name, err)
				}
			}
		}
		for _, user := range config.Users {
			if user.Name == c.Context.User {
				if err := b.readUser(user.User); err != nil {
					return fmt.Errorf("user %q: %w", user.Name, err)
				}
			}
		}
	}
	switch {
	case b.server == "":
		return fmt.Errorf("context %q does not refer to a cluster", current)
	case b.token == "":
		return fmt.Errorf("context %q does not refer to a user with a token", current)
	}
	return nil
}

func (b *bootstrap) readCluster(cluster map[string]any) error {
	for key, value := range cluster {
		text, isText := value.(string)
		switch key {
		case "server":
			b.server = text
		case "tls-server-name":
			b.serverName = text
		case "certificate-authority-data":
			var err error
			if b.caPEM, err = decodeBase64(text); err != nil {
				return fmt.Errorf("certificate-authority-data: %w", err)
			}
		case "extensions":
			continue
		default:
			return fmt.Errorf("the field %s is not supported", key)
		}
		if !isText {
			return fmt.Errorf("the field %s must be text", key)
		}
	}
	u, err := url.Parse(b.server)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("server %q must be an https URL", b.server)
	}
	block, _ := pem.Decode(b.caPEM)
	if block == nil || block.Type != "CERTIFICATE" {
		return errors.New("certificate-authority-data is missing or not a certificate")
	}
	if _, err := x509.ParseCertificate(block.Bytes); err != nil {
		return fmt.Errorf("certificate-authority-data: %w", err)
	}
	return nil
}

func (b *bootstrap) readUser(user map[string]any) error {
	for key, value := range user {
		if key != "token" {
			return fmt.Errorf("the field %s is not supported", key)
		}
		b.token, _ = value.(string)
	}
	// net/http would refuse such a token on every call, with an unhelpful message.
	if !tokenFormat.MatchString(b.token) {
		return errors.New("the token is missing, or contains characters that are not allowed")
	}
	return nil
}

var tokenFormat = regexp.MustCompile(`^[\x21-\x7e]+$`)

// readKubeletConfig reads the fields of a KubeletConfiguration that are visible from outside the machine.
func (b *bootstrap) readKubeletConfig(data []byte) error {
	var config struct {
		APIVersion                string         `json:"apiVersion"`
		Kind                      string         `json:"kind"`
		RegisterWithTaints        []corev1.Taint `json:"registerWithTaints"`
		NodeStatusUpdateFrequency string         `json:"nodeStatusUpdateFrequency"`
		NodeStatusReportFrequency string         `json:"nodeStatusReportFrequency"`
		NodeLeaseDurationSeconds  int32          `json:"nodeLeaseDurationSeconds"`
		ServerTLSBootstrap        bool           `json:"serverTLSBootstrap"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	if config.APIVersion != "kubelet.config.k8s.io/v1beta1" || config.Kind != "KubeletConfiguration" {
		return fmt.Errorf("the type is %s %s, not kubelet.config.k8s.io/v1beta1 KubeletConfiguration", config.APIVersion,
			config.Kind)
	}
	b.taints, b.serverTLS = config.RegisterWithTaints, config.ServerTLSBootstrap
	if s := config.NodeLeaseDurationSeconds; s < 0 || s > 3600 {
		return fmt.Errorf("nodeLeaseDurationSeconds: %d must be from 1 to 3600", s)
	} else if s > 0 {
		b.leaseDuration = time.Duration(s) * time.Second
	}
	check, err := frequency("nodeStatusUpdateFrequency", config.NodeStatusUpdateFrequency)
	if err != nil {
		return err
	}
	report, err := frequency("nodeStatusReportFrequency", config.NodeStatusReportFrequency)
	if err != nil {
		return err
	}
	if check > 0 {
		// Without nodeStatusReportFrequency, a kubelet uses nodeStatusUpdateFrequency for its reports.
		b.statusCheck, b.statusReport = check, check
	}
	if report > 0 {
		b.statusReport = report
	}
	return nil
}

func frequency(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > 24*time.Hour {
		return 0, fmt.Errorf("%s: %q must be a duration of at most a day", field, text)
	}
	if d > 0 {
		d = max(d, time.Second)
	}
	return d, nil
}

// readExtraArgs reads the node labels in the kubelet flags, and returns the other flags.
func (b *bootstrap) readExtraArgs(args string) (ignored []string, err error) {
	fields := strings.Fields(args)
	for i := 0; i < len(fields); i++ {
		name, value, ok := strings.Cut(fields[i], "=")
		if name != "--node-labels" {
			ignored = append(ignored, fields[i])
			continue
		}
		if !ok && i+1 < len(fields) {
			i++
			value = fields[i]
		}
		for pair := range strings.SplitSeq(value, ",") {
			if pair == "" {
				continue
			}
			key, value, _ := strings.Cut(pair, "=")
			if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
				return nil, fmt.Errorf("--node-labels: %q is not a valid label", pair)
			}
			if !kubeletMaySet(key) {
				return nil, fmt.Errorf("--node-labels: a kubelet must not set %q on its own node", key)
			}
			b.labels[key] = value
		}
	}
	return ignored, nil
}

// kubeletMaySet reports whether a kubelet accepts a label. kubeletMaySet accepts only some labels of Kubernetes' own
// domains.
func kubeletMaySet(key string) bool {
	namespace, _, qualified := strings.Cut(key, "/")
	within := func(domains ...string) bool {
		for _, d := range domains {
			if namespace == d || strings.HasSuffix(namespace, "."+d) {
				return true
			}
		}
		return false
	}
	if !qualified || !within("kubernetes.io", "k8s.io") {
		return true
	}
	switch key {
	case corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelInstanceTypeStable,
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelInstanceType,
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, labelBetaOS, labelBetaArch:
		return true
	}
	return within("kubelet.kubernetes.io", "node.kubernetes.io")
}
