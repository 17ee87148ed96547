package profile

import (
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"machinist.dev/machinist/internal/class/bootstrap"
)

var (
	versionForm  = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	registryForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?$`)
	pathForm     = regexp.MustCompile(`^(/[A-Za-z0-9_@+=:,.-]+)+$`)
	unitForm     = regexp.MustCompile(`^[A-Za-z0-9:_.-]+\.(service|socket|timer|path|mount|automount|swap|target)$`)
	noProxyForm  = regexp.MustCompile(`^[A-Za-z0-9.:*/\[\],_-]+$`)
	sshKeyForm   = regexp.MustCompile(`^(ssh-|ecdsa-|sk-)[a-z0-9@.-]+ [A-Za-z0-9+/]+=*( .*)?$`)
	featureForm  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*$`)
)

// validate returns an error for invalid options. Values in files of other formats, such as TOML, must match a strict
// pattern, so that they cannot add anything else.
func (o *Options) validate(d distribution) error {
	for _, check := range []func(distribution) error{o.refuseKubeletOptions, o.validateServer, o.validateRuntime,
		o.validateProxy, o.validateAccess, o.validateSource, o.validateKubelet, o.validateUserFiles} {
		if err := check(d); err != nil {
			return err
		}
	}
	return nil
}

// refuseKubeletOptions returns an error for kubelet options in a profile that does not configure the kubelet.
func (o *Options) refuseKubeletOptions(d distribution) error {
	if d.join == nil {
		return nil
	}
	for _, option := range []struct {
		flag, value string
		given       bool
	}{
		{"--kubelet-url", redacted(o.KubeletURL), o.KubeletURL != ""},
		{"--kubelet", string(o.Kubelet), o.Kubelet != ""},
		{"--package-repository", redacted(o.PackageRepository), o.PackageRepository != ""},
		{"--package-repository-key", "", o.PackageRepositoryKey != nil},
		{"--kubelet-sha256", fmt.Sprint(slices.Sorted(maps.Keys(o.KubeletSHA256))), len(o.KubeletSHA256) > 0},
		{"--kubelet-binary", o.KubeletBinary, o.KubeletBinary != ""},
		{"--kubelet-config", "", o.KubeletConfig != nil},
		{"--feature-gates", fmt.Sprint(slices.Sorted(maps.Keys(o.FeatureGates))), len(o.FeatureGates) > 0},
		{"--cluster-dns", fmt.Sprint(o.ClusterDNS), len(o.ClusterDNS) > 0},
		{"--client-ca", "", o.ClientCA != nil},
	} {
		if !option.given {
			continue
		}
		if option.value != "" { // The content of files is not shown, so the value may be empty.
			option.flag += fmt.Sprintf(" %q", option.value)
		}
		return fmt.Errorf("%s: the profile %s does not configure the kubelet: %s", option.flag, o.Profile, d.settingsSource)
	}
	return nil
}

func (o *Options) validateServer(d distribution) error {
	switch {
	case o.Server == "" && d.agent != nil && d.agent.server == "":
		return fmt.Errorf("--server is not set: give the URL of the servers that agents join, such as https://rke2.example:9345")
	case o.Server == "":
		return nil
	case d.agent == nil:
		return fmt.Errorf("--server %q: is valid only for the profiles k3s and rke2, and the profile is %s", redacted(o.Server), o.Profile)
	case !strings.HasPrefix(o.Server, "https://"):
		return fmt.Errorf("--server %q: must start with https://", redacted(o.Server))
	}
	return validateURL("--server", o.Server, false)
}

func (o *Options) validateRuntime(d distribution) error {
	switch {
	case o.Runtime != RuntimePackage && o.Runtime != RuntimePreinstalled:
		return fmt.Errorf("--runtime %q: must be package or preinstalled", o.Runtime)
	case o.Runtime == RuntimePackage && d.runtimePackage == "":
		return fmt.Errorf("--runtime %q: the profile %s installs no packages", o.Runtime, o.Profile)
	}
	for i, m := range o.Mirrors {
		value := m.Registry + "=" + m.URL
		if !registryForm.MatchString(m.Registry) {
			return fmt.Errorf("--registry-mirror %q: write REGISTRY=URL, such as docker.io=https://mirror.example", redacted(value))
		}
		if err := validateURL("--registry-mirror "+m.Registry, m.URL, false); err != nil {
			return err
		}
		if slices.Contains(o.Mirrors[:i], m) {
			return fmt.Errorf("--registry-mirror %q: is given twice", redacted(value))
		}
	}
	return nil
}

func (o *Options) validateProxy(distribution) error {
	if o.HTTPProxy != "" {
		if err := validateURL("--http-proxy", o.HTTPProxy, true); err != nil {
			return err
		}
	}
	if o.HTTPSProxy != "" {
		if err := validateURL("--https-proxy", o.HTTPSProxy, true); err != nil {
			return err
		}
	}
	if o.NoProxy != "" && !noProxyForm.MatchString(o.NoProxy) {
		return fmt.Errorf("--no-proxy %q: write hosts, domains and networks separated by commas", o.NoProxy)
	}
	if o.NoProxy != "" && !o.hasProxy() {
		return fmt.Errorf("--no-proxy %q: has no effect without --http-proxy or --https-proxy", o.NoProxy)
	}
	return nil
}

func (o *Options) validateAccess(distribution) error {
	for _, key := range o.SSHKeys {
		if !sshKeyForm.MatchString(key) || !isText([]byte(key)) || strings.ContainsAny(key, "\n\r\t") || hasPlaceholder(key) {
			return fmt.Errorf("--ssh-key %q: must be one public key, such as ssh-ed25519 AAAA… name", shortened(key))
		}
	}
	if o.ClientCA == nil {
		return nil
	}
	count := 0
	for block, rest := pem.Decode(o.ClientCA); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("--client-ca: the file contains a block %q, but only certificates are allowed", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("--client-ca: a certificate cannot be parsed: %w", err)
		}
		count++
	}
	if count == 0 {
		return fmt.Errorf("--client-ca: the file contains no PEM certificate")
	}
	return nil
}

func (o *Options) validateSource(d distribution) error {
	if d.join != nil {
		return nil
	}
	switch o.Kubelet {
	case KubeletPackages:
		if d.packaging == nil {
			return fmt.Errorf("--kubelet %q: the profile %s installs no packages", o.Kubelet, o.Profile)
		}
		if o.PackageRepository == "" {
			return fmt.Errorf("--package-repository is not set: give the URL of a repository with packages of the kubelet")
		}
		if err := validateURL("--package-repository", o.PackageRepository, false); err != nil {
			return err
		}
		if !isText(o.PackageRepositoryKey) || hasPlaceholder(string(o.PackageRepositoryKey)) ||
			!strings.HasPrefix(string(o.PackageRepositoryKey), "-----BEGIN PGP PUBLIC KEY BLOCK-----") {
			return fmt.Errorf("--package-repository-key: give a file with the repository's OpenPGP key in ASCII armor")
		}
	case KubeletURL:
		if err := o.validateDownload(); err != nil {
			return err
		}
	case KubeletPreinstalled:
		if !pathForm.MatchString(o.KubeletBinary) {
			return fmt.Errorf("--kubelet-binary %q: must be an absolute path", o.KubeletBinary)
		}
	default:
		return fmt.Errorf("--kubelet %q: must be packages, url or preinstalled", o.Kubelet)
	}
	for _, other := range []struct {
		flag   string
		set    bool
		source KubeletSource
	}{
		{"--package-repository", o.PackageRepository != "", KubeletPackages},
		{"--package-repository-key", o.PackageRepositoryKey != nil, KubeletPackages},
		{"--kubelet-url", o.KubeletURL != "", KubeletURL},
		{"--kubelet-sha256", len(o.KubeletSHA256) > 0, KubeletURL},
		{"--kubelet-binary", o.KubeletBinary != "", KubeletPreinstalled},
	} {
		if other.set && other.source != o.Kubelet {
			return fmt.Errorf("%s: is valid only with --kubelet %s, and the kubelet's source is %q", other.flag, other.source, o.Kubelet)
		}
	}
	return nil
}

func (o *Options) validateDownload() error {
	example := strings.ReplaceAll(o.KubeletURL, versionPlaceholder, "v1.36.3")
	switch {
	case o.KubeletURL == "":
		return fmt.Errorf("--kubelet-url is not set: give the URL of the kubelet, with %s in place of its version", versionPlaceholder)
	case example == o.KubeletURL:
		return fmt.Errorf("--kubelet-url %q: does not contain %s, so all machines would get the same version", redacted(o.KubeletURL), versionPlaceholder)
	case len(o.KubeletSHA256) == 0:
		return fmt.Errorf("--kubelet-sha256 is not set: give VERSION=CHECKSUM for each version of the machines")
	}
	if err := validateURL("--kubelet-url", example, false); err != nil {
		return err
	}
	for _, version := range slices.Sorted(maps.Keys(o.KubeletSHA256)) {
		sum := o.KubeletSHA256[version]
		if digest, err := hex.DecodeString(sum); err != nil || len(digest) != 32 || !versionForm.MatchString(version) {
			return fmt.Errorf("--kubelet-sha256 %q: write VERSION=CHECKSUM, such as v1.36.3= and 64 hexadecimal digits",
				version+"="+sum)
		}
	}
	return nil
}

func (o *Options) validateKubelet(distribution) error {
	for _, address := range o.ClusterDNS {
		if a, err := netip.ParseAddr(address); err != nil || a.Zone() != "" {
			return fmt.Errorf("--cluster-dns %q: is not an IP address", address)
		}
	}
	for _, feature := range slices.Sorted(maps.Keys(o.FeatureGates)) {
		if !featureForm.MatchString(feature) {
			return fmt.Errorf("--feature-gates %q: is not the name of a feature gate", feature)
		}
	}
	return nil
}

func (o *Options) validateUserFiles(distribution) error {
	for _, f := range o.Files {
		if !pathForm.MatchString(f.Path) || path.Clean(f.Path) != f.Path {
			return fmt.Errorf("--file %q: must be an absolute path without spaces and in its shortest form", f.Path)
		}
	}
	for _, u := range o.Units {
		if !unitForm.MatchString(u.Name) {
			return fmt.Errorf("--unit %q: is not the name of a systemd unit, such as agent.service", u.Name)
		}
		if bootstrap.NeedsToken(u.Content) {
			return fmt.Errorf("--unit %s: all users of the machine can read units, so a unit must not contain the bootstrap token", u.Name)
		}
	}
	return nil
}

// validateURL returns an error unless the value is the http or https URL of a server, without characters that are
// special in configuration files. Only proxies may have a password.
func validateURL(flag, value string, password bool) error {
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" ||
		u.Fragment != "" || hasPlaceholder(value) || strings.ContainsFunc(value, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("\"'\\`$<>", r)
	}) {
		return fmt.Errorf("%s %q: is not the http or https URL of a server", flag, redacted(value))
	}
	if u.User != nil && !password {
		return fmt.Errorf("%s %q: must not contain a user or password", flag, redacted(value))
	}
	return nil
}

// redacted returns the value of an option for an error message. The function omits the part before an @, because this
// part may contain a password.
func redacted(value string) string {
	scheme, rest, found := strings.Cut(value, "://")
	if at := strings.LastIndex(rest, "@"); found && at >= 0 {
		return scheme + "://***" + rest[at:]
	}
	if at := strings.LastIndex(value, "@"); at >= 0 {
		return "***" + value[at:]
	}
	return value
}

// shortened truncates an invalid value for an error message. If the user gave a private key instead of a public key
// by mistake, the message must not contain the whole key.
func shortened(value string) string {
	if len(value) > 20 {
		return strings.ToValidUTF8(value[:20], "") + "…"
	}
	return value
}
