package controlplane

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/controlplane/auditlog"
)

// bootstrap checks that a node gets its certificate with a bootstrap token, but only after an approval.
func bootstrap(t *testing.T, cp *ControlPlane, admin client.Client) {
	ctx := t.Context()
	const id, secret = "abcdef", "0123456789abcdef"
	token := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id":                       id,
			"token-secret":                   secret,
			"usage-bootstrap-authentication": "true",
			"auth-extra-groups":              KubeadmTokens,
		},
	}
	if err := admin.Create(ctx, token); err != nil {
		t.Fatal(err)
	}
	kubelet := newClient(t, &rest.Config{
		Host:            cp.Endpoint(),
		TLSClientConfig: rest.TLSClientConfig{CAData: cp.CA()},
		BearerToken:     id + "." + secret,
	})

	// The API server watches Secrets, so it accepts the new token after a short delay.
	var user authenticationv1.SelfSubjectReview
	eventually(t, func(ctx context.Context) error { return kubelet.Create(ctx, &user) })
	if got := user.Status.UserInfo; got.Username != "system:bootstrap:"+id ||
		!slices.Contains(got.Groups, "system:bootstrappers") {
		t.Fatalf("the token authenticates as %+v", got)
	}

	signed := nodeCSR(t, "approved")
	if err := kubelet.Create(ctx, signed); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(signed), signed); err != nil {
			return err
		}
		if len(signed.Status.Certificate) == 0 {
			return fmt.Errorf("not signed: %v", signed.Status.Conditions)
		}
		return nil
	})
	block, _ := pem.Decode(signed.Status.Certificate)
	if block == nil {
		t.Fatalf("the certificate is not PEM: %s", signed.Status.Certificate)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if got := certificate.Subject.CommonName; got != "system:node:approved" {
		t.Errorf("the certificate is for %q", got)
	}

	// Without the bindings of the option, the approver leaves the request pending.
	for _, binding := range nodeBindings(true)[1:] {
		if err := admin.Delete(ctx,
			&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: binding.Name}}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func(ctx context.Context) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   user.Status.UserInfo.Username,
			Groups: user.Status.UserInfo.Groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: certificatesv1.GroupName, Resource: "certificatesigningrequests", Subresource: "nodeclient", Verb: "create",
			},
		}}
		if err := admin.Create(ctx, review); err != nil {
			return err
		}
		if review.Status.Allowed {
			return errors.New("the deleted binding is still in effect")
		}
		return nil
	})
	log, err := auditlog.Open(cp.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Mark(); err != nil {
		t.Fatal(err)
	}
	pending := nodeCSR(t, "pending")
	if err := kubelet.Create(ctx, pending); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(context.Context) error {
		checks, err := log.Requests(auditlog.Filter{
			Users: []string{"system:serviceaccount:kube-system:certificate-controller"},
			Match: func(r auditlog.Request) bool { return r.Resource == "subjectaccessreviews" },
		})
		if err == nil && len(checks) == 0 {
			err = errors.New("the approver has not checked the request yet")
		}
		return err
	})
	if err := admin.Get(ctx, client.ObjectKeyFromObject(pending), pending); err != nil {
		t.Fatal(err)
	}
	if len(pending.Status.Conditions) > 0 || len(pending.Status.Certificate) > 0 {
		t.Errorf("a request without approval has the status %+v", pending.Status)
	}
}

func nodeCSR(t *testing.T, node string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
}
