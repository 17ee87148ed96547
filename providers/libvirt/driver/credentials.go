package driver

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// Keys of a Secret with credentials. Those of TLS are called as in a Secret of the type kubernetes.io/tls.
const (
	keyURI         = "uri"
	keyCA          = "ca.crt"
	keyCertificate = "tls.crt"
	keyKey         = "tls.key"
)

const (
	maxCredentialBytes = 64 << 10
	maxURIBytes        = 1 << 10

	defaultSocket = "/run/libvirt/libvirt-sock"
	tcpPort       = "16509"
	tlsPort       = "16514"
)

// endpoint is a hypervisor and how to reach it.
type endpoint struct {
	// network and address are those of net.Dial.
	network, address string
	// driver is what libvirtd is asked to open, such as "qemu:///system".
	driver string
	tls    *tls.Config
}

// public names the endpoint without secrets.
func (e endpoint) public() string {
	security := ""
	if e.tls != nil {
		security = "+tls"
	}
	return e.driver + " at " + e.network + security + " " + e.address
}

func malformed(format string, args ...any) error {
	return provider.Errorf(provider.InvalidArgument, format, args...)
}

// parse reads a Secret. White space around values is not part of them: Secrets made from files end in a newline. Errors
// name the key and never the value of a secret one.
func (o *Options) parse(c provider.Credentials) (endpoint, error) {
	if c.Empty() {
		return endpoint{}, provider.Errorf(provider.Unauthenticated,
			"there are no credentials; a Secret with the key %s is needed", keyURI)
	}
	known := []string{keyURI, keyCA, keyCertificate, keyKey}
	for _, key := range c.Keys() {
		if !slices.Contains(known, key) {
			return endpoint{}, malformed("%.128q is not a key of the credentials; there are %s", key, strings.Join(known, ", "))
		}
		if value, _ := c.Get(key); len(value.Reveal()) > maxCredentialBytes {
			return endpoint{}, malformed("the key %q of the credentials is longer than %d bytes", key, maxCredentialBytes)
		}
	}
	value, given := c.Get(keyURI)
	text := strings.TrimSpace(string(value.Reveal()))
	if !given || text == "" || len(text) > maxURIBytes {
		return endpoint{}, malformed("the key %q of the credentials is missing or longer than %d bytes: it is such as "+
			"qemu+tls://hypervisor.example.com/system", keyURI, maxURIBytes)
	}
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return endpoint{}, malformed("the key %q of the credentials is not a URI such as "+
			"qemu+tls://hypervisor.example.com/system, without a user", keyURI)
	}
	hypervisor, transport, _ := strings.Cut(u.Scheme, "+")
	e := endpoint{driver: hypervisor + "://" + u.Path}
	switch {
	case hypervisor == "qemu" && (u.Path == "/system" || u.Path == "/session"), hypervisor == "test" && u.Path == "/default":
	default:
		return endpoint{}, malformed("the key %q of the credentials has the hypervisor %.64q, not qemu:///system or "+
			"qemu:///session", keyURI, e.driver)
	}
	switch transport {
	case "unix":
		err = o.unix(&e, u, c)
	case "tcp":
		err = o.tcp(&e, u, c)
	case "tls":
		err = o.encrypted(&e, u, c)
	default:
		err = malformed("the key %q of the credentials has the transport %.64q, not unix, tls or tcp", keyURI, transport)
	}
	return e, err
}

// unix is for a socket of the provider's machine.
func (o *Options) unix(e *endpoint, u *url.URL, c provider.Credentials) error {
	query := u.Query()
	path := defaultSocket
	if query.Has("socket") {
		path = query.Get("socket")
		query.Del("socket")
	}
	if err := noParameters(query, "socket"); err != nil {
		return err
	}
	if u.Host != "" {
		return malformed("the key %q of the credentials has the transport unix and a host; use tls", keyURI)
	}
	if err := noTLS(c); err != nil {
		return err
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return malformed("the socket in the key %q of the credentials is no absolute path", keyURI)
	}
	if !slices.Contains(o.Sockets, path) {
		return provider.Errorf(provider.PermissionDenied,
			"the socket in the key %q of the credentials is not one of those that the provider was started with "+
				"(--libvirt-socket)", keyURI)
	}
	e.network, e.address = "unix", path
	return nil
}

func (o *Options) tcp(e *endpoint, u *url.URL, c provider.Credentials) error {
	if !o.PlainTCP {
		return provider.Errorf(provider.PermissionDenied,
			"the key %q of the credentials has the transport tcp, which has no TLS; to allow that, run the provider with "+
				"--libvirt-plain-tcp", keyURI)
	}
	if err := noTLS(c); err != nil {
		return err
	}
	return o.remote(e, u, tcpPort)
}

func (o *Options) encrypted(e *endpoint, u *url.URL, c provider.Credentials) error {
	if err := o.remote(e, u, tlsPort); err != nil {
		return err
	}
	e.tls = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Hostname()}
	ca, given := c.Get(keyCA)
	if !given {
		return malformed("the key %q of the credentials is missing: the authority of libvirtd's certificate, in PEM", keyCA)
	}
	e.tls.RootCAs = x509.NewCertPool()
	if !e.tls.RootCAs.AppendCertsFromPEM(ca.Reveal()) {
		return malformed("the key %q of the credentials has no certificate in PEM", keyCA)
	}
	certificate, hasCertificate := c.Get(keyCertificate)
	key, hasKey := c.Get(keyKey)
	if !hasCertificate || !hasKey {
		return malformed("the keys %q and %q of the credentials are both needed with the transport tls", keyCertificate, keyKey)
	}
	pair, err := tls.X509KeyPair(certificate.Reveal(), key.Reveal())
	if err != nil {
		// The reason could quote the key.
		return malformed("the keys %q and %q of the credentials are no certificate and its key in PEM", keyCertificate, keyKey)
	}
	e.tls.Certificates = []tls.Certificate{pair}
	return nil
}

// remote is for a port of a host.
func (o *Options) remote(e *endpoint, u *url.URL, port string) error {
	if err := noParameters(u.Query(), ""); err != nil {
		return err
	}
	host := u.Hostname()
	if host == "" {
		return malformed("the key %q of the credentials names no host", keyURI)
	}
	port = cmp.Or(u.Port(), port)
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return malformed("the key %q of the credentials has the port %.16q", keyURI, port)
	}
	if len(o.Hosts) > 0 && !slices.Contains(o.Hosts, host) {
		return provider.Errorf(provider.PermissionDenied,
			"the host in the key %q of the credentials is not one of those that the provider was started with (--libvirt-host)",
			keyURI)
	}
	e.network, e.address = "tcp", net.JoinHostPort(host, port)
	return nil
}

// noParameters refuses what other clients of libvirt take: most of it names files or commands.
func noParameters(query url.Values, but string) error {
	for name := range query {
		if but == "" {
			return malformed("the key %q of the credentials has the parameter %.64q; this transport takes no parameters", keyURI, name)
		}
		return malformed("the key %q of the credentials has the parameter %.64q; only %q is known", keyURI, name, but)
	}
	return nil
}

// noTLS refuses certificates that would not be used.
func noTLS(c provider.Credentials) error {
	for _, key := range []string{keyCA, keyCertificate, keyKey} {
		if _, given := c.Get(key); given {
			return malformed("the key %q of the credentials is for the transport tls only", key)
		}
	}
	return nil
}
