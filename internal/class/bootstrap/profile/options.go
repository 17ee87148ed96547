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

// Runtime is where containerd comes from.
type Runtime string

const (
	// RuntimePackage installs the distribution's package.
	RuntimePackage Runtime = "package"
	// RuntimePreinstalled takes the image's.
	RuntimePreinstalled Runtime = "preinstalled"
)

// KubeletSource is where the kubelet comes from.
type KubeletSource string

const (
	// KubeletPackages installs the package of the machine's version from a repository.
	KubeletPackages KubeletSource = "packages"
	// KubeletURL downloads the program of the machine's version and checks its checksum.
	KubeletURL KubeletSource = "url"
	// KubeletPreinstalled takes the image's, whatever its version.
	KubeletPreinstalled KubeletSource = "preinstalled"
)

// Options say what a template brings. The zero value of each field but Profile asks for nothing, or for the profile's
// default.
type Options struct {
	// Profile is one of Names.
	Profile string

	Runtime Runtime
	// Mirrors are asked for images in place of their registry, in this order.
	Mirrors []Mirror

	// HTTPProxy and HTTPSProxy are URLs for containerd, the kubelet and the installation of packages. NoProxy are hosts,
	// domains and networks that are reached without them, separated by commas.
	HTTPProxy, HTTPSProxy, NoProxy string

	// SSHKeys may log in as the image's default user, each a line of authorized_keys.
	SSHKeys []string
	// SetHostname names the machine's host as the Machine. Without it the cloud names it.
	SetHostname bool

	// Server is the https URL of the servers of k3s or RKE2 that agents join. k3s has the API endpoint by default.
	Server string

	// Kubelet is where the kubelet comes from. The fields after it belong to one source each.
	Kubelet KubeletSource
	// PackageRepository is the URL of a repository of packages; {minor} in it stands for the machine's minor version, such
	// as v1.36. PackageRepositoryKey is the armoured OpenPGP key of its signatures.
	PackageRepository    string
	PackageRepositoryKey []byte
	// KubeletURL has the placeholder KUBELET_VERSION. KubeletSHA256 are hexadecimal checksums by version, such as v1.36.3.
	KubeletURL    string
	KubeletSHA256 map[string]string
	// KubeletBinary is the path of a preinstalled kubelet; default /usr/bin/kubelet.
	KubeletBinary string

	// KubeletConfig is a KubeletConfiguration in YAML that is merged into the profile's.
	KubeletConfig []byte
	FeatureGates  map[string]bool
	// ClusterDNS are the addresses of the cluster's name servers.
	ClusterDNS []string
	// ClientCA is the PEM bundle of authorities whose clients may call the kubelet. Without it that is the bundle that
	// verifies the API server.
	ClientCA []byte

	Files []File
	Units []Unit
}

// Mirror is asked for the images of a registry.
type Mirror struct {
	Registry, URL string
}

// File is a file of the user's.
type File struct {
	// Path is absolute.
	Path    string
	Content []byte
	// Executable gives it the mode 0755 rather than 0644; one with the bootstrap token has 0600.
	Executable bool
}

// Unit is a unit of systemd of the user's, which is enabled and started.
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

// file returns the file as the machine has it. Only text may have placeholders: Machinist does not look into what is
// encoded.
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
		return file{}, fmt.Errorf("--file %s: it has a placeholder and is not text in UTF-8", f.Path)
	}
	out.text, out.base64 = base64.StdEncoding.EncodeToString(f.Content), true
	return out, nil
}

// hasPlaceholder reports whether Machinist would replace a part of a value, or a part looks as if it should.
func hasPlaceholder(value string) bool {
	out, err := bootstrap.Render([]byte(value), sample)
	return err != nil || string(out) != value || len(bootstrap.Unknown([]byte(value))) > 0
}

// isText says whether every format can have the content as it is.
func isText(content []byte) bool {
	return len(bytes.TrimSpace(content)) > 0 && utf8.Valid(content) &&
		!strings.ContainsFunc(string(content), func(r rune) bool {
			return r != '\n' && r != '\t' && r != '\r' && !unicode.IsPrint(r)
		})
}
