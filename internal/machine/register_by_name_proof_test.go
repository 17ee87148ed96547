package machine

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env"
)

func withoutProviderID(n *corev1.Node) { n.Spec.ProviderID = "" }

// tokenID returns the ID of the only token of the namespace's machines.
func (w *world) tokenID() string {
	w.t.Helper()
	tokens := w.tokens()
	if len(tokens) != 1 {
		w.t.Fatalf("there are %d tokens", len(tokens))
	}
	return string(tokens[0].Data["token-id"])
}

func (w *world) certified(machine, user string,
	change ...func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
	w.t.Helper()
	csr := w.requested(machine, user)
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
	}}
	csr.Status.Certificate = selfSigned(w.t)
	for _, f := range change {
		f(csr)
	}
	certificate := csr.Status.Certificate
	if err := w.api.SubResource("approval").Update(w.t.Context(), csr); err != nil {
		w.t.Fatal(err)
	}
	csr.Status.Certificate = certificate
	if err := w.api.Status().Update(w.t.Context(), csr); err != nil {
		w.t.Fatal(err)
	}
	return csr
}

func (w *world) requested(machine, user string) *certificatesv1.CertificateSigningRequest {
	w.t.Helper()
	key := newKey(w.t)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + nodeNameOf(w.namespace, machine),
			Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		w.t.Fatal(err)
	}
	config := rest.CopyConfig(env.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:bootstrappers",
		"system:masters"}}
	as, err := client.New(config, client.Options{Scheme: env.Scheme(), Mapper: w.api.RESTMapper()})
	if err != nil {
		w.t.Fatal(err)
	}
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: w.namespace + "-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	if err := as.Create(w.t.Context(), csr); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := w.api.Delete(context.Background(), csr); client.IgnoreNotFound(err) != nil {
			w.t.Error(err)
		}
	})
	return csr
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func selfSigned(t testing.TB) []byte {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// launched creates a Machine whose instance has a bootstrap token. It returns the name of the user that the token
// represents in the target cluster.
func (w *world) launched(name string) (user string) {
	w.t.Helper()
	w.createMachine(name)
	w.reconcile(name)
	return "system:bootstrap:" + w.tokenID()
}

func ofAnotherInstance(n *corev1.Node) { n.Spec.ProviderID = "fake:///somebody/else" }

func denied(csr *certificatesv1.CertificateSigningRequest) {
	csr.Status.Conditions[0].Type, csr.Status.Certificate = certificatesv1.CertificateDenied, nil
}

func unsigned(csr *certificatesv1.CertificateSigningRequest) { csr.Status.Certificate = nil }

func formerAttempt(w *world, user string) {
	w.t.Helper()
	w.certified("m", user)
	m := w.get("m")
	m.Status.Launch = &v1beta1.LaunchStatus{Attempt: 2}
	if err := w.api.Status().Update(w.t.Context(), m); err != nil {
		w.t.Fatal(err)
	}
	w.node("m", true, withoutProviderID)
}

func thereBefore(w *world, user string) {
	w.t.Helper()
	node := w.node("m", true, withoutProviderID)
	// Wait for the next second, because times of the API server are whole seconds.
	err := utilwait.PollUntilContextTimeout(w.t.Context(), 50*time.Millisecond, env.Patience, true,
		func(context.Context) (bool, error) {
			return w.requested("other", "alice").CreationTimestamp.After(node.CreationTimestamp.Time), nil
		})
	if err != nil {
		w.t.Fatal(err)
	}
	w.certified("m", user)
}
