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
	dialTimeout = 5 * time.Second
	// mostSkew is how far two clocks may differ without a report. A certificate is valid from five minutes before it is
	// signed, so small differences are harmless.
	mostSkew    = time.Minute
	expiresSoon = 30 * 24 * time.Hour
	// oldestMinor is the oldest supported minor version of Kubernetes 1, and newestMinor the newest tested one.
	oldestMinor, newestMinor = 30, 37
)

// Join checks what every machine needs to join a cluster.
type Join struct {
	// Target is a client of the target cluster without a cache.
	Target client.Client
	// Endpoint is the API server URL in user data. CABundle is the PEM bundle that verifies its certificate.
	Endpoint string
	CABundle []byte
	// Service is the address of the API server inside the cluster, or empty if unknown.
	Service string
	// Version is the version of the API server, or empty if unknown.
	Version string
	Now     func() time.Time

	// dial connects to the endpoint. Nil means the default dialer.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Findings makes the checks. If a check fails, it returns an error and the findings of the other checks.
func (j Join) Findings(ctx context.Context) (found []Finding, err error) {
	found, err = j.tokensMayRequest(ctx)
	found = append(found, j.authority()...)
	found = append(found, j.endpoint(ctx)...)
	return append(found, supported(j.Version)...), err
}

func (j Join) tokensMayRequest(ctx context.Context) ([]Finding, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   "system:bootstrap:abcdef",
		Groups: []string{"system:bootstrappers", bootstrap.Group, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: certificatesv1.GroupName,
			Resource: "certificatesigningrequests", Verb: "create"},
	}}
	if err := j.Target.Create(ctx, review); err != nil {
		return nil, fmt.Errorf("check whether bootstrap tokens may request certificates: %w", err)
	}
	if review.Status.Allowed {
		return nil, nil
	}
	return []Finding{{Reason: TokensMayNotRequest,
		Message: "Bootstrap tokens of the group " + bootstrap.Group + " may not create CertificateSigningRequests in the " +
			"target cluster, so no machine can join it.",
		Fix: "Set nodeBootstrapper.enabled=true in the chart machinist, or run: kubectl create clusterrolebinding " +
			"machinist-node-bootstrapper --clusterrole=system:node-bootstrapper --group=" + bootstrap.Group}}, nil
}

// authority reports certificate authorities of the endpoint that have expired or expire soon.
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
			Message: fmt.Sprintf("The certificate authority of the API server expires on %s.", last.UTC().Format(time.RFC3339)),
			Fix:     "Renew the certificate authority and the kubeconfig files of the processes."}}
	}
	return []Finding{{Reason: AuthorityExpired,
		Message: fmt.Sprintf("The certificate authority of the API server expired on %s, so kubelets do not trust it.",
			last.UTC().Format(time.RFC3339)),
		Fix: "Renew the certificate authority and the kubeconfig files of the processes."}}
}

// endpoint connects to the API server address in user data as a kubelet would. A failure is only a guess, because
// instances may be in another network.
func (j Join) endpoint(ctx context.Context) []Finding {
	u, err := url.Parse(j.Endpoint)
	if err != nil || u.Host == "" {
		return nil
	}
	if why := privateAddress(u.Hostname(), j.Service); why != "" {
		return []Finding{{Reason: EndpointNotReachable, IsUncertain: true, Warning: true,
			Message: fmt.Sprintf("User data contains the API server address %s, %s. Instances outside cannot reach it.",
				j.Endpoint, why),
			Fix: "Start the provider with an address that instances can reach: --bootstrap-endpoint=https://HOST:PORT"}}
	}
	answer, err := j.connect(ctx)
	if e, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		return []Finding{{Reason: EndpointNotTrusted,
			Message: fmt.Sprintf("The server at %s, the API server address in user data, has a certificate that the "+
				"certificate authority in user data does not verify: %v.", j.Endpoint, e.Err),
			Fix: "Correct --bootstrap-endpoint or --bootstrap-ca-file of the provider, or the target kubeconfig."}}
	}
	if err != nil {
		if e, ok := errors.AsType[*net.OpError](err); ok {
			err = e.Err // Omit the local port, which differs each time.
		}
		return []Finding{{Reason: EndpointNotReachable, IsUncertain: true, Warning: true,
			Message: fmt.Sprintf("The API server address in user data, %s, cannot be reached from here: %v.", j.Endpoint, err),
			Fix:     "If instances cannot reach it either, correct --bootstrap-endpoint of the provider."}}
	}
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if skew := date.Sub(j.Now()).Abs(); err == nil && skew > mostSkew {
		return []Finding{{Reason: ClocksDiffer, Warning: true,
			Message: fmt.Sprintf("The clock of the API server differs by %s from the local clock. If clocks differ, "+
				"kubelets may refuse certificates, and the API server may refuse bootstrap tokens.", skew.Round(time.Second)),
			Fix: "Synchronize the clocks of the control plane, the processes and the instances."}}
	}
	return nil
}

// privateAddress describes an address that is reachable only from this host or inside a cluster. It returns "" for
// other addresses.
func privateAddress(host, service string) string {
	if host == service && service != "" {
		return "an address inside the cluster"
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() || host == "localhost" {
		return "an address of this host"
	}
	if host == "kubernetes" || strings.HasPrefix(host, "kubernetes.default") || strings.HasSuffix(host, ".svc") ||
		strings.Contains(host, ".svc.") {
		return "an address inside the cluster"
	}
	return ""
}

// connect requests the version. Any answer proves that the server is reachable, even a refusal.
func (j Join) connect(ctx context.Context) (*http.Response, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(j.CABundle) {
		roots = nil // Use the system's roots, as kubelets do.
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

func supported(server string) []Finding {
	v, err := version.ParseSemantic(server)
	if err != nil || v.Major() == 1 && v.Minor() >= oldestMinor && v.Minor() <= newestMinor {
		return nil
	}
	return []Finding{{Reason: VersionNotSupported, Warning: true,
		Message: fmt.Sprintf("The cluster runs Kubernetes %s. Machinist supports 1.%d to 1.%d.", server, oldestMinor, newestMinor),
		Fix:     "Upgrade the cluster or Machinist."}}
}
