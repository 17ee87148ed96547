package preflight

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"machinist.dev/machinist/internal/class/bootstrap"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// authorizing returns a client of a cluster that permits bootstrap tokens of these groups to request certificates.
func authorizing(t *testing.T, groups ...string) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			review := o.(*authorizationv1.SubjectAccessReview)
			for _, group := range review.Spec.Groups {
				for _, allowed := range groups {
					review.Status.Allowed = review.Status.Allowed || group == allowed
				}
			}
			return nil
		}}).Build()
}

func authorityUntil(t *testing.T, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"},
		NotBefore: end.Add(-24 * time.Hour), NotAfter: end, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Rule: join-is-checked-beforehand.
func TestJoinFindsProblems(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", noon.Format(http.TimeFormat))
		w.WriteHeader(http.StatusUnauthorized) // An API server may hide its version from anonymous clients.
	}))
	t.Cleanup(server.Close)
	toServer := func(ctx context.Context, network, address string) (net.Conn, error) {
		if !strings.HasPrefix(address, "example.com:") {
			return nil, errors.New("no such host")
		}
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
	trusted := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, c := range map[string]struct {
		change func(*Join)
		want   string // reason; empty if there is no problem
		text   string // part of the text
	}{
		"nothing is wrong": {func(*Join) {}, "", ""},
		"only the binding of kubeadm": {func(j *Join) {
			j.Target = authorizing(t, "system:bootstrappers:kubeadm:default-node-token")
		}, TokensMayNotRequest, "kubectl create clusterrolebinding machinist-node-bootstrapper --clusterrole=system:node-bootstrapper --group=" + bootstrap.Group},
		"every token may request":     {func(j *Join) { j.Target = authorizing(t, "system:bootstrappers") }, "", ""},
		"authority expired":           {func(j *Join) { j.CABundle = authorityUntil(t, noon.Add(-time.Hour)) }, AuthorityExpired, "expired on 2026-01-01T11:00:00Z"},
		"authority expires soon":      {func(j *Join) { j.CABundle = authorityUntil(t, noon.Add(time.Hour)) }, AuthorityExpired, "expires on 2026-01-01T13:00:00Z"},
		"address of the Service":      {func(j *Join) { j.Endpoint, j.Service = "https://10.96.0.1", "10.96.0.1" }, EndpointNotReachable, "inside the cluster"},
		"name of the Service":         {func(j *Join) { j.Endpoint = "https://kubernetes.default.svc" }, EndpointNotReachable, "inside the cluster"},
		"loopback address":            {func(j *Join) { j.Endpoint = "https://[::1]:6443" }, EndpointNotReachable, "address of this host"},
		"no answer":                   {func(j *Join) { j.Endpoint = "https://machinist.invalid:6443" }, EndpointNotReachable, "--bootstrap-endpoint"},
		"another authority":           {func(j *Join) { j.CABundle = authorityUntil(t, noon.Add(1000*time.Hour)) }, EndpointNotTrusted, "does not verify: x509: certificate signed by unknown authority"},
		"the clocks differ":           {func(j *Join) { j.Now = func() time.Time { return noon.Add(10 * time.Minute) } }, ClocksDiffer, "differs by 10m0s"},
		"an old version":              {func(j *Join) { j.Version = "v1.29.3" }, VersionNotSupported, "Machinist supports 1.30 to 1.37"},
		"a version of a distribution": {func(j *Join) { j.Version = "v1.36.1+k3s1" }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			j := Join{Target: authorizing(t, bootstrap.Group), Endpoint: "https://example.com:6443", CABundle: trusted,
				Version: "v1.37.2", Now: func() time.Time { return noon }, dial: toServer}
			c.change(&j)
			found, err := j.Findings(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case c.want == "" && len(found) > 0:
				t.Errorf("found %+v", found)
			case c.want != "" && (len(found) == 0 || found[0].Reason != c.want || !strings.Contains(found[0].Text(), c.text)):
				t.Errorf("found %+v, want %s with the text …%s…", found, c.want, c.text)
			}
		})
	}
}
