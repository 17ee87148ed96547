package driver

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/endpoints"
)

// These are the keys of a Secret with credentials. The TLS keys are the same as in a Secret of type kubernetes.io/tls.
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

	allowAddress = "to allow connections to it, set --libvirt-allow-address"
)

// endpoint describes how to reach a hypervisor.
type endpoint struct {
	// network and address are the parameters of net.Dial.
	network, address string
	// driver is the URI that libvirtd opens, such as "qemu:///system".
	driver string
	tls    *tls.Config
}

// publicName returns a description of the endpoint without secrets.
func (e endpoint) publicName() string {
	security := ""
	if e.tls != nil {
		security = "+tls"
	}
	return e.driver + " at " + e.network + security + " " + e.address
}

func malformed(format string, args ...any) error {
	return provider.Errorf(provider.InvalidArgument, format, args...)
}

// parse trims white space, because Secrets created from files end with a newline. Errors name the invalid key but never
// contain its value.
func (o *Options) parse(c provider.Credentials) (endpoint, error) {
	if c.IsEmpty() {
		return endpoint{}, provider.Errorf(provider.Unauthenticated,
			"the credentials are missing: create a Secret with the key %s", keyURI)
	}
	known := []string{keyURI, keyCA, keyCertificate, keyKey}
	for _, key := range c.Keys() {
		if !slices.Contains(known, key) {
			return endpoint{}, malformed("the credentials have an unknown key %.128q; allowed: %s", key, strings.Join(known, ", "))
		}
		if value, _ := c.Get(key); len(value.Reveal()) > maxCredentialBytes {
			return endpoint{}, malformed("the key %q of the credentials is longer than %d bytes", key, maxCredentialBytes)
		}
	}
	value, given := c.Get(keyURI)
	text := strings.TrimSpace(string(value.Reveal()))
	if !given || text == "" || len(text) > maxURIBytes {
		return endpoint{}, malformed("the key %q of the credentials is missing or longer than %d bytes; an example is "+
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
		err = o.parseUnix(&e, u, c)
	case "tcp":
		err = o.parseTCP(&e, u, c)
	case "tls":
		err = o.parseTLS(&e, u, c)
	default:
		err = malformed("the key %q of the credentials has the transport %.64q, not unix, tls or tcp", keyURI, transport)
	}
	return e, err
}

// parseUnix reads a URI with a Unix socket on the host of the provider.
func (o *Options) parseUnix(e *endpoint, u *url.URL, c provider.Credentials) error {
	query := u.Query()
	path := defaultSocket
	if query.Has("socket") {
		path = query.Get("socket")
		query.Del("socket")
	}
	if err := checkParameters(query, "socket"); err != nil {
		return err
	}
	if u.Host != "" {
		return malformed("the key %q of the credentials has the transport unix and a host; use the transport tls", keyURI)
	}
	if err := refuseTLSKeys(c); err != nil {
		return err
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return malformed("the socket in the key %q of the credentials is not an absolute path", keyURI)
	}
	if !slices.Contains(o.Sockets, path) {
		return provider.Errorf(provider.PermissionDenied,
			"the provider does not allow the socket in the key %q of the credentials; allow the socket with --libvirt-socket",
			keyURI)
	}
	e.network, e.address = "unix", path
	return nil
}

func (o *Options) parseTCP(e *endpoint, u *url.URL, c provider.Credentials) error {
	if !o.PlainTCP {
		return provider.Errorf(provider.PermissionDenied,
			"the key %q of the credentials has the transport tcp, which has no TLS; to allow it, set --libvirt-plain-tcp",
			keyURI)
	}
	if err := refuseTLSKeys(c); err != nil {
		return err
	}
	return o.parseAddress(e, u, tcpPort)
}

func (o *Options) parseTLS(e *endpoint, u *url.URL, c provider.Credentials) error {
	if err := o.parseAddress(e, u, tlsPort); err != nil {
		return err
	}
	e.tls = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Hostname()}
	ca, given := c.Get(keyCA)
	if !given {
		return malformed("the key %q of the credentials, the authority that signed libvirtd's certificate in PEM, is missing",
			keyCA)
	}
	e.tls.RootCAs = x509.NewCertPool()
	if !e.tls.RootCAs.AppendCertsFromPEM(ca.Reveal()) {
		return malformed("the key %q of the credentials has no certificate in PEM", keyCA)
	}
	certificate, hasCertificate := c.Get(keyCertificate)
	key, hasKey := c.Get(keyKey)
	if !hasCertificate || !hasKey {
		return malformed("the transport tls requires the keys %q and %q of the credentials", keyCertificate, keyKey)
	}
	pair, err := tls.X509KeyPair(certificate.Reveal(), key.Reveal())
	if err != nil {
		// The library's error could contain the private key.
		return malformed("the keys %q and %q of the credentials are not a certificate and its private key in PEM",
			keyCertificate, keyKey)
	}
	e.tls.Certificates = []tls.Certificate{pair}
	return nil
}

func (o *Options) parseAddress(e *endpoint, u *url.URL, port string) error {
	if err := checkParameters(u.Query(), ""); err != nil {
		return err
	}
	host := u.Hostname()
	if host == "" {
		return malformed("the URI in the key %q of the credentials has no host", keyURI)
	}
	port = cmp.Or(u.Port(), port)
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return malformed("the key %q of the credentials has an invalid port %.16q", keyURI, port)
	}
	listed := slices.Contains(o.Hosts, host)
	if len(o.Hosts) > 0 && !listed {
		return provider.Errorf(provider.PermissionDenied,
			"the provider does not allow the host in the key %q of the credentials; allow the host with --libvirt-host", keyURI)
	}
	if denied, ok := errors.AsType[*endpoints.DeniedError](o.Endpoints.CheckHost(host)); ok && !listed {
		return provider.Errorf(provider.PermissionDenied, "the host in the key %q of the credentials is %s; %s", keyURI,
			denied.Kind, allowAddress)
	}
	e.network, e.address = "tcp", net.JoinHostPort(host, port)
	return nil
}

// checkParameters refuses the parameters of other libvirt clients, because most of them name files or commands.
func checkParameters(query url.Values, allowed string) error {
	for name := range query {
		if allowed == "" {
			return malformed("the key %q of the credentials has the parameter %.64q; this transport has no parameters", keyURI,
				name)
		}
		return malformed("the key %q of the credentials has the parameter %.64q; only %q is allowed", keyURI, name, allowed)
	}
	return nil
}

// refuseTLSKeys refuses certificates that the transport does not use.
func refuseTLSKeys(c provider.Credentials) error {
	for _, key := range []string{keyCA, keyCertificate, keyKey} {
		if _, given := c.Get(key); given {
			return malformed("the key %q of the credentials is only allowed with the transport tls", key)
		}
	}
	return nil
}
