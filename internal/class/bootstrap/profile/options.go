package profile

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"machinist.dev/machinist/internal/class/bootstrap"
)

// Runtime is the source of containerd.
type Runtime string

const (
	// RuntimePackage means that containerd is installed from a package of the distribution.
	RuntimePackage Runtime = "package"
	// RuntimePreinstalled means that the containerd of the image is used.
	RuntimePreinstalled Runtime = "preinstalled"
)

// KubeletSource is the source of the kubelet.
type KubeletSource string

const (
	// KubeletPackages means that the kubelet is installed from a package repository, in the version of the machine.
	KubeletPackages KubeletSource = "packages"
	// KubeletURL means that the kubelet is downloaded in the version of the machine, and that its checksum is verified.
	KubeletURL KubeletSource = "url"
	// KubeletPreinstalled means that the kubelet of the image is used, whatever its version is.
	KubeletPreinstalled KubeletSource = "preinstalled"
)

// Options are the inputs of Render. Only Profile is required. If another field has its zero value, Render uses the
// profile's default or adds nothing.
type Options struct {
	// Profile is the name of a profile, such as "kubeadm". For a list of all profiles, see the function Names.
	Profile string

	Runtime Runtime
	// Mirrors are tried in this order instead of the original registry.
	Mirrors []Mirror

	// HTTPProxy and HTTPSProxy are the proxy URLs for containerd, the kubelet and package installation. NoProxy lists
	// hosts, domains and networks without a proxy, separated by commas.
	HTTPProxy, HTTPSProxy, NoProxy string

	// SSHKeys are the public keys for the image's default user, each a line of authorized_keys.
	SSHKeys []string
	// SetHostname sets the host name to the Machine's name. If SetHostname is false, the cloud sets the host name.
	SetHostname bool

	// Server is the https URL of the k3s or RKE2 servers. Defaults to the API endpoint for k3s.
	Server string

	// Kubelet is the source of the kubelet. Each of the following fields belongs to one source.
	Kubelet KubeletSource
	// PackageRepository is the URL of a package repository, in which {minor} is replaced by the minor version, such as
	// v1.36. PackageRepositoryKey is the ASCII-armored OpenPGP key of the repository.
	PackageRepository    string
	PackageRepositoryKey []byte
	// KubeletURL contains the placeholder KUBELET_VERSION. KubeletSHA256 maps versions, such as v1.36.3, to hexadecimal
	// checksums.
	KubeletURL    string
	KubeletSHA256 map[string]string
	// KubeletBinary is the path of a preinstalled kubelet. Defaults to /usr/bin/kubelet.
	KubeletBinary string

	// KubeletConfig is a KubeletConfiguration in YAML, which is merged into that of the profile.
	KubeletConfig []byte
	FeatureGates  map[string]bool
	// ClusterDNS are the addresses of the cluster's DNS servers.
	ClusterDNS []string
	// ClientCA is the PEM bundle of the CAs of the kubelet's clients. Defaults to the bundle that verifies the API
	// server.
	ClientCA []byte

	Files []File
	Units []Unit
}

// Mirror makes containerd pull the images of a registry from another URL.
type Mirror struct {
	Registry, URL string
}

// File is an additional file of the user.
type File struct {
	// Path is absolute.
	Path    string
	Content []byte
	// If Executable is true, the mode of the file is 0755 instead of 0644. A file with the bootstrap token always has
	// the mode 0600.
	Executable bool
}

// Unit is an additional systemd unit, which is enabled and started.
type Unit struct {
	Name    string
	Content []byte
}

func (o *Options) setDefaults(d distribution) {
	o.Runtime = cmp.Or(o.Runtime, d.runtime)
	if o.Kubelet == "" && o.KubeletURL != "" {
		o.Kubelet = KubeletURL
	}
	o.Kubelet = cmp.Or(o.Kubelet, d.kubelet)
	if o.Kubelet == KubeletPreinstalled {
		o.KubeletBinary = cmp.Or(o.KubeletBinary, "/usr/bin/kubelet")
	}
}

func (o *Options) hasProxy() bool { return o.HTTPProxy != "" || o.HTTPSProxy != "" }

// file returns the file as text if possible, and otherwise in base64. Only text may contain placeholders, because
// Machinist does not decode base64 in a template.
func (f File) file() (file, error) {
	out := file{path: f.Path, mode: 0o644, text: string(f.Content)}
	if f.Executable {
		out.mode = 0o755
	}
	if len(f.Content) > 0 && isText(f.Content) {
		if bootstrap.NeedsToken(f.Content) {
			out.mode = 0o600
		}
		return out, nil
	}
	if hasPlaceholder(string(f.Content)) {
		return file{}, fmt.Errorf("--file %s: the file contains a placeholder but is not UTF-8 text", f.Path)
	}
	out.text, out.base64 = base64.StdEncoding.EncodeToString(f.Content), true
	return out, nil
}

func hasPlaceholder(value string) bool {
	out, err := bootstrap.Render([]byte(value), sample)
	return err != nil || string(out) != value || len(bootstrap.UnknownPlaceholders([]byte(value))) > 0
}

func isText(content []byte) bool {
	return len(bytes.TrimSpace(content)) > 0 && utf8.Valid(content) &&
		!strings.ContainsFunc(string(content), func(r rune) bool {
			return r != '\n' && r != '\t' && r != '\r' && !unicode.IsPrint(r)
		})
}
