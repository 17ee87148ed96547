package preflight

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/class/bootstrap"
)

const (
	// dialTimeout bounds the connection to the endpoint.
	dialTimeout = 5 * time.Second
	// mostSkew is by how much clocks may differ. Certificates are valid from five minutes before they are signed.
	mostSkew = time.Minute
	// expiresSoon is how long before its end an authority is reported.
	expiresSoon = 30 * 24 * time.Hour
	// oldestMinor is the version of Kubernetes 1 that Machinist needs, newestMinor the newest that it knows.
	oldestMinor, newestMinor = 30, 37
)

// Join is what every machine that joins a cluster needs of it.
type Join struct {
	// Target asks the API server of the cluster itself.
	Target client.Client
	// Endpoint is the URL of the API server as user data has it, and CABundle what verifies it, in PEM.
	Endpoint string
	CABundle []byte
	// Service is the address of the API server inside of the cluster; empty where it is not known.
	Service string
	// Version is that of the API server; empty where it is not known.
	Version string
	Now     func() time.Time

	// dial connects to the endpoint; nil does it as usual.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Findings makes the checks. What it may not find out is an error beside the findings.
func (j Join) Findings(ctx context.Context) (found []Finding, err error) {
	found, err = j.tokensMayRequest(ctx)
	found = append(found, j.authority()...)
	found = append(found, j.endpoint(ctx)...)
	return append(found, supported(j.Version)...), err
}

// tokensMayRequest asks whether a bootstrap token of a machine may request a certificate.
func (j Join) tokensMayRequest(ctx context.Context) ([]Finding, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   "system:bootstrap:abcdef",
		Groups: []string{"system:bootstrappers", bootstrap.Group, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: certificatesv1.GroupName,
			Resource: "certificatesigningrequests", Verb: "create"},
	}}
	if err := j.Target.Create(ctx, review); err != nil {
		return nil, fmt.Errorf("ask whether bootstrap tokens may request certificates: %w", err)
	}
	if review.Status.Allowed {
		return nil, nil
	}
	return []Finding{{Reason: TokensMayNotRequest,
		Message: "Bootstrap tokens of the group " + bootstrap.Group + " may not create CertificateSigningRequests in the " +
			"target cluster, so no machine can join it.",
		Fix: "Set nodeBootstrapper.enabled=true of the chart machinist, or run: kubectl create clusterrolebinding " +
			"machinist-node-bootstrapper --clusterrole=system:node-bootstrapper --group=" + bootstrap.Group}}, nil
}

// authority checks how long the certificates that verify the endpoint are valid.
func (j Join) authority() []Finding {
	var last time.Time
	for rest := j.CABundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && c.NotAfter.After(last) {
			last = c.NotAfter
		}
	}
	left := last.Sub(j.Now())
	switch {
	case last.IsZero() || left > expiresSoon:
		return nil
	case left > 0:
		return []Finding{{Reason: AuthorityExpired, Warning: true,
			Message: fmt.Sprintf("The certificate authority of the API server ends on %s.", last.UTC().Format(time.RFC3339)),
			Fix:     "Renew it, and the kubeconfig of the processes with it."}}
	}
	return []Finding{{Reason: AuthorityExpired,
		Message: fmt.Sprintf("The certificate authority of the API server ended on %s, so kubelets do not trust it.",
			last.UTC().Format(time.RFC3339)),
		Fix: "Renew it, and the kubeconfig of the processes with it."}}
}

// endpoint looks at the address that user data has, and connects to it as a kubelet would. That it cannot be reached
// from here says little of instances, which are elsewhere.
func (j Join) endpoint(ctx context.Context) []Finding {
	u, err := url.Parse(j.Endpoint)
	if err != nil || u.Host == "" {
		return nil
	}
	if why := private(u.Hostname(), j.Service); why != "" {
		return []Finding{{Reason: EndpointNotReachable, Guess: true, Warning: true,
			Message: fmt.Sprintf("User data has %s as the address of the API server, %s, which instances elsewhere do not reach.",
				j.Endpoint, why),
			Fix: "Give the provider the address that instances reach: --bootstrap-endpoint=https://HOST:PORT"}}
	}
	answer, err := j.connect(ctx)
	if e, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		return []Finding{{Reason: EndpointNotTrusted,
			Message: fmt.Sprintf("What answers at %s, the address of the API server in user data, is not verified by the "+
				"certificate authority in user data: %v.", j.Endpoint, e.Err),
			Fix: "Correct --bootstrap-endpoint or --bootstrap-ca-file of the provider, or the target kubeconfig."}}
	}
	if err != nil {
		if e, ok := errors.AsType[*net.OpError](err); ok {
			err = e.Err // Without the port of this end, which is another one each time.
		}
		return []Finding{{Reason: EndpointNotReachable, Guess: true, Warning: true,
			Message: fmt.Sprintf("Nothing answers from here at %s, the address of the API server in user data: %v.", j.Endpoint, err),
			Fix:     "If instances do not reach it either, correct --bootstrap-endpoint of the provider."}}
	}
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if skew := date.Sub(j.Now()).Abs(); err == nil && skew > mostSkew {
		return []Finding{{Reason: ClocksDiffer, Warning: true,
			Message: fmt.Sprintf("The clock of the API server differs by %s from the one here. Certificates and bootstrap tokens "+
				"are refused where clocks differ.", skew.Round(time.Second)),
			Fix: "Synchronize the clocks of control plane, processes and instances."}}
	}
	return nil
}

// private says of an address that only this host or the inside of a cluster reaches it; empty if it may be reached.
func private(host, service string) string {
	if host == service && service != "" {
		return "an address inside of the cluster"
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() || host == "localhost" {
		return "which is this host itself"
	}
	if host == "kubernetes" || strings.HasPrefix(host, "kubernetes.default") || strings.HasSuffix(host, ".svc") ||
		strings.Contains(host, ".svc.") {
		return "an address inside of the cluster"
	}
	return ""
}

// connect asks for the version, which anybody may or may not read: any answer will do.
func (j Join) connect(ctx context.Context) (*http.Response, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(j.CABundle) {
		roots = nil // Those of the system, as kubelets do.
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: j.dial,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(j.Endpoint, "/")+"/version", nil)
	if err != nil {
		return nil, err
	}
	answer, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	return answer, answer.Body.Close()
}

// supported checks the version of an API server.
func supported(server string) []Finding {
	v, err := version.ParseSemantic(server)
	if err != nil || v.Major() == 1 && v.Minor() >= oldestMinor && v.Minor() <= newestMinor {
		return nil
	}
	return []Finding{{Reason: VersionNotSupported, Warning: true,
		Message: fmt.Sprintf("The cluster runs Kubernetes %s; Machinist needs 1.%d or newer, and knows versions up to 1.%d.", server, oldestMinor, newestMinor),
		Fix:     "Upgrade the cluster, or Machinist."}}
}
