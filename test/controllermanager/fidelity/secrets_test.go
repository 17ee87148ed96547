package fidelity

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func newRequest(t *testing.T, name, signer string,
	template x509.CertificateRequest) *certificatesv1.CertificateSigningRequest {
	der, err := x509.CreateCertificateRequest(nil, &template, ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	usage := certificatesv1.UsageClientAuth
	if signer == certificatesv1.KubeletServingSignerName {
		usage = certificatesv1.UsageServerAuth
	}
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}}
	csr.Spec.SignerName, csr.Spec.Usages = signer, []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, usage}
	csr.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return csr
}

func decide(name string, decision certificatesv1.RequestConditionType) step {
	return step{name: name + " is " + string(decision), do: func(ctx context.Context, s *cluster) error {
		csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: s.name(name)}}
		if err := s.Get(ctx, client.ObjectKeyFromObject(csr), csr); err != nil {
			return err
		}
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: decision, Status: corev1.ConditionTrue, Reason: "Test"})
		return s.SubResource("approval").Update(ctx, csr)
	}}
}

func TestCertificatesAreSigned(t *testing.T) {
	template := func(organization, name string) x509.CertificateRequest {
		return x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: []string{organization}}}
	}
	joining := template("system:nodes", "system:node:n")
	serving := joining
	serving.DNSNames, serving.IPAddresses = []string{"n"}, []net.IP{net.IPv4(192, 0, 2, 1).To4()}
	var scenario []step
	const clientSigner = certificatesv1.KubeAPIServerClientKubeletSignerName
	const servingSigner = certificatesv1.KubeletServingSignerName
	for name, csr := range map[string]*certificatesv1.CertificateSigningRequest{
		"client":       newRequest(t, "client", clientSigner, joining),
		"serving":      newRequest(t, "serving", servingSigner, serving),
		"no-address":   newRequest(t, "no-address", servingSigner, joining),
		"wrong-group":  newRequest(t, "wrong-group", clientSigner, template("people", "system:node:n")),
		"no-node":      newRequest(t, "no-node", clientSigner, template("system:nodes", "someone")),
		"with-address": newRequest(t, "with-address", clientSigner, serving),
		"other-signer": newRequest(t, "other-signer", "example.com/signer", joining),
		"denied":       newRequest(t, "denied", clientSigner, joining),
		"not-decided":  newRequest(t, "not-decided", clientSigner, joining),
	} {
		scenario = append(scenario, create(csr))
		if name == "denied" {
			scenario = append(scenario, decide(name, certificatesv1.CertificateDenied))
		} else if name != "not-decided" {
			scenario = append(scenario, decide(name, certificatesv1.CertificateApproved))
		}
	}
	compare(t, scenario...)
}

// The token cleaner must keep tokens without an expiration, and all other Secrets.
func TestExpiredTokensAreDeleted(t *testing.T) {
	token := func(id string, kind corev1.SecretType, in time.Duration) step {
		return step{name: "create the token " + id, do: func(ctx context.Context, s *cluster) error {
			secret := &corev1.Secret{Type: kind, ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem,
				Name: "bootstrap-token-" + id + s.namespace}}
			secret.StringData = map[string]string{"token-id": id, "token-secret": "0123456789abcdef"}
			if in != 0 {
				secret.StringData["expiration"] = time.Now().Add(in).UTC().Format(time.RFC3339)
			}
			return s.Create(ctx, secret)
		}}
	}
	const bootstrap = corev1.SecretType("bootstrap.kubernetes.io/token")
	compare(t, token("later0", bootstrap, time.Hour), token("never0", bootstrap, 0),
		token("opaque", corev1.SecretTypeOpaque, -time.Minute), token("soon00", bootstrap, 3*time.Second),
		token("past00", bootstrap, -time.Minute))
}
