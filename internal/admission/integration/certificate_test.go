package integration

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/test/env"
)

func webhookRefuses(t *testing.T, c client.Client, ns string) error {
	err := c.Create(t.Context(), machine(ns, "probe", reserved), client.DryRunAll)
	if fields(err) == nil {
		return fmt.Errorf("got %w, want a refusal by the webhook", err)
	}
	return nil
}

func leaf(secret *corev1.Secret) []byte {
	if block, _ := pem.Decode(secret.Data[corev1.TLSCertKey]); block != nil {
		return block.Bytes
	}
	return nil
}

func newCertificate(t *testing.T, life time.Duration) (authority *rotator.KeyPairArtifacts, cert, key []byte) {
	t.Helper()
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	maker := &rotator.CertRotator{CAName: "machinist-webhooks", CAOrganization: "machinist", DNSName: "localhost",
		ExtKeyUsages: &usage}
	begin := time.Now().Add(-2 * time.Hour)
	authority, err := maker.CreateCACert(begin, time.Now().Add(life))
	must(t, "create an authority", err)
	cert, key, err = maker.CreateCertPEM(authority, begin, time.Now().Add(life))
	must(t, "create a certificate", err)
	return authority, cert, key
}

// Rule: webhook-certificate-maintained.
func TestCertificateIsRepairedAndPresentedByEveryReplica(t *testing.T) {
	ctx, c, ns := t.Context(), env.Client(t), env.Namespace(t)
	one, two := freeAddress(t), freeAddress(t)
	configuration := manifests.ManagerWebhook(urlOf(one))
	installWebhooks(t, configuration)
	serve(t, core, true, asCore, "--webhook-bind-address="+one)
	serve(t, core, false, asCore, "--webhook-bind-address="+two)
	eventually(t, "the webhook is asked", func() error { return webhookRefuses(t, c, ns) })
	key := client.ObjectKey{Namespace: system, Name: core + "-webhook"}
	read := func() *corev1.Secret {
		secret := &corev1.Secret{}
		if err := c.Get(ctx, key, secret); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return secret
	}
	update := func(change func(map[string][]byte)) func() error {
		return func() error {
			secret := read()
			change(secret.Data)
			return c.Update(ctx, secret)
		}
	}
	authority, cert, certKey := newCertificate(t, -time.Hour)
	for _, test := range []struct {
		what   string
		damage func() error
	}{
		{"the Secret is deleted", func() error { return c.Delete(ctx, read()) }},
		{"the certificate is garbled", update(func(d map[string][]byte) { d[corev1.TLSCertKey] = []byte("garbled") })},
		{"the key of the authority is garbled", update(func(d map[string][]byte) { d["ca.key"] = []byte("garbled") })},
		{"the Secret is cleared", update(func(d map[string][]byte) { clear(d) })},
		{"everything has expired", update(func(d map[string][]byte) {
			d["ca.crt"], d["ca.key"], d[corev1.TLSCertKey], d[corev1.TLSPrivateKeyKey] = authority.CertPEM, authority.KeyPEM, cert, certKey
		})},
	} {
		before := leaf(read())
		eventually(t, test.what, test.damage)
		eventually(t, test.what+": there is another certificate", func() error {
			now := leaf(read())
			if now == nil || bytes.Equal(now, before) {
				return errors.New("none yet")
			}
			return checkPresented(now, one, two)
		})
		eventually(t, test.what+": the webhook is asked", func() error { return webhookRefuses(t, c, ns) })
	}

	eventually(t, "the bundle is emptied", func() error {
		now := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: core}}
		must(t, "read the configuration", c.Get(ctx, client.ObjectKeyFromObject(now), now))
		now.Webhooks[0].ClientConfig.CABundle = nil
		return c.Update(ctx, now)
	})
	eventually(t, "the webhook is asked again", func() error {
		now := &admissionv1.ValidatingWebhookConfiguration{}
		must(t, "read the configuration", c.Get(ctx, client.ObjectKey{Name: core}, now))
		if len(now.Webhooks[0].ClientConfig.CABundle) == 0 {
			return errors.New("no bundle")
		}
		return webhookRefuses(t, c, ns)
	})
	must(t, "delete the configuration", c.Delete(ctx, configuration.DeepCopy()))
	must(t, "install it again", install.Apply(ctx, env.Config(), configuration))
	eventually(t, "the webhook that came later is asked", func() error { return webhookRefuses(t, c, ns) })
}

// Rule: webhook-certificate-maintained.
func TestCertificateInFolderIsPresented(t *testing.T) {
	c, ns, folder := env.Client(t), env.Namespace(t), t.TempDir()
	address := freeAddress(t)
	configuration := manifests.ManagerWebhook(urlOf(address))
	var bundle []byte
	write := func() []byte {
		authority, cert, key := newCertificate(t, time.Hour)
		bundle = append(bundle, authority.CertPEM...)
		for name, content := range map[string][]byte{"tls.key": key, "tls.crt": cert} {
			must(t, "write a certificate", os.WriteFile(filepath.Join(folder, name), content, 0o600))
		}
		block, _ := pem.Decode(cert)
		return block.Bytes
	}
	first := write()
	configuration.Webhooks[0].ClientConfig.CABundle = bundle
	installWebhooks(t, configuration)
	serve(t, core, true, asCore, "--webhook-bind-address="+address, "--webhook-cert-dir="+folder)
	eventually(t, "the first is presented", func() error { return checkPresented(first, address) })
	eventually(t, "the webhook is asked", func() error { return webhookRefuses(t, c, ns) })
	second := write()
	eventually(t, "the second is presented", func() error { return checkPresented(second, address) })
	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: system, Name: core + "-webhook"},
		secret); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the process created a Secret: %v", err)
	}
}
