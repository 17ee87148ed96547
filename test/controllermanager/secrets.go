package controllermanager

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func expiration(s *corev1.Secret) (at time.Time, ok bool) {
	if s.Namespace != metav1.NamespaceSystem || s.Type != "bootstrap.kubernetes.io/token" {
		return at, false
	}
	at, err := time.Parse(time.RFC3339, string(s.Data["expiration"]))
	return at, err == nil
}

func (m Manager) expiredTokens() (out []Choice) {
	for _, o := range m.Server.Snapshot(secretKind) {
		s := o.(*corev1.Secret)
		if at, ok := expiration(s); !ok || m.Now().Before(at) {
			continue
		}
		out = append(out, newChoice(func() error {
			return client.IgnoreNotFound(m.Server.Client(TokenCleaner).Delete(context.Background(), s.DeepCopy(),
				client.Preconditions{UID: &s.UID}))
		}, "token cleaner deletes expired token %s", s.Name))
	}
	return out
}

// signatures returns the pending actions of the controller that signs kubelet certificates. For an approved
// CertificateSigningRequest, the controller issues a certificate or sets the condition Failed.
func (m Manager) signatures() (out []Choice) {
	for _, o := range m.Server.Snapshot(requestKind) {
		csr := o.(*certificatesv1.CertificateSigningRequest)
		if !has(csr, certificatesv1.CertificateApproved) || has(csr, certificatesv1.CertificateFailed) ||
			len(csr.Status.Certificate) > 0 || !strings.HasPrefix(csr.Spec.SignerName, "kubernetes.io/") {
			continue
		}
		changed := csr.DeepCopy()
		if reason := refusalReason(csr); reason == "" {
			changed.Status.Certificate = []byte("certificate")
		} else {
			changed.Status.Conditions = append(changed.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure",
				Message: reason, LastUpdateTime: m.now(), LastTransitionTime: m.now()})
		}
		out = append(out, newChoice(func() error { return m.patchStatus(Signer, csr, changed) },
			"signer processes request %s", csr.Name))
	}
	return out
}

func has(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

func refusalReason(csr *certificatesv1.CertificateSigningRequest) string {
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil {
		return "the request is not PEM"
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	usage := certificatesv1.UsageClientAuth
	switch {
	case err != nil:
		return err.Error()
	case csr.Spec.SignerName == certificatesv1.KubeletServingSignerName:
		usage = certificatesv1.UsageServerAuth
		if len(request.DNSNames)+len(request.IPAddresses) == 0 {
			return "the request for a serving certificate contains no address"
		}
	case csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName:
		return ""
	case len(request.DNSNames)+len(request.IPAddresses) > 0:
		return "the request for a client certificate contains an address"
	}
	switch {
	case !slices.Equal(request.Subject.Organization, []string{"system:nodes"}):
		return "the organization is not system:nodes"
	case !strings.HasPrefix(request.Subject.CommonName, "system:node:"):
		return "the common name does not start with system:node:"
	case !slices.Contains(csr.Spec.Usages, usage):
		return "the usages do not match the signer"
	}
	return ""
}
