package driver_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/driver"
	"machinist.dev/machinist/providers/azure/fakeazure"
	"machinist.dev/machinist/providers/azure/machine/sample"
)

// newKey returns a private key, and the content of a Secret with the key and its certificate.
func newKey(t *testing.T) (*rsa.PrivateKey, string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "machinist"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	_ = pem.Encode(&out, &pem.Block{Type: "PRIVATE KEY", Bytes: private})
	return key, out.String()
}

func (c *cloud) list(credentials provider.Credentials) error {
	_, err := c.driver().List(c.Context(), provider.ListRequest{ClusterID: cluster,
		Class: provider.Class{Spec: sample.Spec(), Credentials: credentials}})
	return err
}

func TestApplicationSignsInWithCertificate(t *testing.T) {
	key, secret := newKey(t)
	_, another := newKey(t)
	c := newCloud(t, func(o *fakeazure.Options) { o.Secret, o.Certificate = "", &key.PublicKey })
	c.must(c.list(credentials("clientSecret", "", "clientCertificate", secret)))
	err := c.list(credentials("clientSecret", "", "clientCertificate", another))
	if provider.CodeOf(err) != provider.Unauthenticated {
		t.Errorf("with another certificate: got %v, want Unauthenticated", err)
	}
}

// The token may change while the process runs, so each new driver reads the file again.
func TestProcessSignsInWithWorkloadIdentity(t *testing.T) {
	key, _ := newKey(t)
	const subject = "system:serviceaccount:machinist-system:machinist-provider-azure"
	c := newCloud(t, func(o *fakeazure.Options) {
		o.Secret, o.FederatedIssuer, o.FederatedSubject = "", &key.PublicKey, subject
	})
	token := func(subject string) {
		signed, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
			Subject: subject, Audience: jwt.ClaimStrings{"api://AzureADTokenExchange"},
			ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
		}).SignedString(key)
		c.must(err)
		c.must(os.WriteFile(c.token, []byte(signed), 0o600))
	}
	own := credentials("clientSecret", "")
	if err := c.list(own); provider.CodeOf(err) != provider.Unauthenticated ||
		!strings.Contains(err.Error(), "workload identity") {
		t.Errorf("without a token: got %v, want Unauthenticated", err)
	}
	c.token = filepath.Join(t.TempDir(), "token")
	c.grants, own = []driver.Grant{{Namespace: "team-a", Client: application}}, own.InNamespace("team-a")
	token(subject)
	c.must(c.list(own))
	token("system:serviceaccount:default:somebody")
	if err := c.list(own); provider.CodeOf(err) != provider.Unauthenticated {
		t.Errorf("with the token of another account: got %v, want Unauthenticated", err)
	}
}

func TestDriverUsesRotatedCredentials(t *testing.T) {
	key, certificate := newKey(t)
	c := newCloud(t, func(o *fakeazure.Options) { o.Certificate = &key.PublicKey })
	d := c.driver()
	for _, now := range []provider.Credentials{credentials(), credentials("clientSecret", "", "clientCertificate",
		certificate)} {
		_, err := d.List(t.Context(), provider.ListRequest{ClusterID: cluster, Class: provider.Class{Spec: sample.Spec(),
			Credentials: now}})
		c.must(err)
	}
}

func TestCredentialsOfAnotherSubscriptionAreRefused(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	in, err := c.driver().Create(t.Context(), request("a", class()))
	c.must(err)
	get := lookup(request("a", class()))
	get.ProviderID, get.Class.Credentials = in.ProviderID, credentials("subscriptionID",
		strings.Replace(subscription, "2", "4", 1))
	if _, err := c.driver().Get(t.Context(), get); provider.CodeOf(err) != provider.FailedPrecondition {
		t.Errorf("got %v, want FailedPrecondition", err)
	}
}

func TestCapacityReadsListOfSizes(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	capacity := func(changes ...any) (provider.Capacity, error) {
		return c.driver().Capacity(t.Context(), provider.CapacityRequest{Class: class(changes...)})
	}
	got, err := capacity("vmSize", "Standard_NC24ads_A100_v4", "osDisk.sizeGiB", 100)
	c.must(err)
	gpus := got.Resources["nvidia.com/gpu"]
	if got.Resources.Cpu().Value() != 24 || got.Resources.Memory().Value() != 220<<30-100<<20 || gpus.Value() != 1 ||
		got.Resources.StorageEphemeral().Value() != 90<<30 || got.Architecture != "amd64" || got.Zone != "westeurope-1" ||
		got.Region != "westeurope" {
		t.Errorf("got %+v", got)
	}
	if got, err = capacity("vmSize", "Standard_D4ps_v5"); err != nil || got.Architecture != "arm64" {
		t.Errorf("got %+v, %v", got, err)
	}
	for field, changes := range map[string][]any{
		"vmSize": {"vmSize", "Standard_Nothing"}, "zone": {"vmSize", "Standard_D4ps_v5", "zone", "3"},
	} {
		_, err := capacity(changes...)
		if e, _ := err.(*provider.Error); e == nil || e.Code != provider.FailedPrecondition || e.Field != field {
			t.Errorf("%v: got %v, want FailedPrecondition about %s", changes, err, field)
		}
	}
	if _, err := capacity("vmSize", "Standard_M128s", "zone", nil); provider.CodeOf(err) != provider.FailedPrecondition {
		t.Errorf("a size that the subscription may not use: got %v, want FailedPrecondition", err)
	}
}
