package certificate

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Two programs that maintain the same Secret revert each other's writes.
//
// Rule: webhook-certificate-maintained.
func TestRepeatedlyRevertedCertificateIsWrittenAtLimitedRate(t *testing.T) {
	at := testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "machinist-system", Name: "webhook"}}
	c := fake.NewClientBuilder().WithObjects(secret).Build()
	k := New(Options{
		Secret: client.ObjectKeyFromObject(secret), Configuration: "machinist", Hosts: []string{"machinist.example"},
		Writer: c, Clock: at, Log: logr.Discard(),
	})
	k.reader = c
	writes := 0
	for began := at.Now(); at.Since(began) < time.Minute; at.Step(50 * time.Millisecond) {
		if _, err := k.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), k.Secret, secret); err != nil {
			t.Fatal(err)
		}
		if len(secret.Data) > 0 {
			writes++
			secret.Data = nil
			if err := c.Update(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}
	}
	if most := writeBurst + int(time.Minute/writePeriod); writes < writeBurst || writes > most {
		t.Errorf("the certificate was written %d times within a minute, want %d to %d", writes, writeBurst, most)
	}
}

// helm --wait waits for ready pods and then applies the first class. So a pod must not become ready before the API
// server trusts its webhook.
//
// Rule: webhook-certificate-maintained.
func TestProcessIsReadyWhenItsWebhookIsTrusted(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "machinist-system", Name: "webhook"}}
	configuration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "machinist"},
		Webhooks: []admissionv1.ValidatingWebhook{{Name: "a.machinist.dev"}, {Name: "b.machinist.dev"}}}
	c := fake.NewClientBuilder().WithObjects(secret, configuration).Build()
	k := New(Options{
		Secret: client.ObjectKeyFromObject(secret), Configuration: configuration.Name, Hosts: []string{"machinist.example"},
		Writer: c, Clock: testingclock.NewFakeClock(time.Now()), Log: logr.Discard(),
	})
	k.reader = c
	ready := func() error { return k.Ready(httptest.NewRequest(http.MethodGet, "/readyz", nil)) }
	if err := ready(); err == nil || !strings.Contains(err.Error(), "does not contain a certificate") {
		t.Errorf("without a certificate: %v", err)
	}
	step := func() {
		if _, err := k.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), k.Secret, secret); err != nil {
			t.Fatal(err)
		}
		presenter{k}.present(secret)
	}
	step()
	if err := ready(); err == nil || !strings.Contains(err.Error(), "a.machinist.dev") {
		t.Errorf("with a certificate that no webhook trusts: %v", err)
	}
	step()
	if err := ready(); err != nil {
		t.Errorf("trusted: %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(configuration), configuration); err != nil {
		t.Fatal(err)
	}
	for i := range configuration.Webhooks {
		configuration.Webhooks[i].ClientConfig.CABundle = nil
	}
	if err := c.Update(t.Context(), configuration); err != nil {
		t.Fatal(err)
	}
	if err := ready(); err != nil {
		t.Errorf("after the configuration was changed: %v", err)
	}
}

// Rule: webhook-certificate-maintained.
func TestBothConfigurationsGetTheirBundles(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "machinist-system", Name: "webhook"}}
	validating := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "machinist"},
		Webhooks: []admissionv1.ValidatingWebhook{{Name: "a.machinist.dev"}, {Name: "b.machinist.dev"}}}
	mutating := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "machinist"},
		Webhooks: []admissionv1.MutatingWebhook{{Name: "c.machinist.dev"}}}
	other := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "others"},
		Webhooks: []admissionv1.MutatingWebhook{{Name: "d.example.com"}}}
	c := fake.NewClientBuilder().WithObjects(secret, validating, mutating, other).Build()
	k := New(Options{
		Secret: client.ObjectKeyFromObject(secret), Configuration: "machinist", Mutating: true,
		Hosts: []string{"machinist.example"}, Writer: c, Clock: testingclock.NewFakeClock(time.Now()), Log: logr.Discard(),
	})
	k.reader = c
	step := func() {
		t.Helper()
		if _, err := k.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
		for _, o := range []client.Object{validating, mutating, other, secret} {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	trusted := func(what string) {
		t.Helper()
		for _, w := range webhooksOf([]client.Object{validating, mutating}) {
			if len(authorities(w.client.CABundle)) != 1 {
				t.Errorf("%s: the bundle of %s contains %d authorities, want one", what, w.name, len(authorities(w.client.CABundle)))
			}
		}
		if len(other.Webhooks[0].ClientConfig.CABundle) > 0 {
			t.Errorf("%s: the configuration of another program was changed", what)
		}
	}
	step()
	step()
	trusted("at first")
	version := validating.ResourceVersion
	mutating.Webhooks[0].ClientConfig.CABundle = nil
	if err := c.Update(t.Context(), mutating); err != nil {
		t.Fatal(err)
	}
	presenter{k}.present(secret)
	if err := k.Ready(httptest.NewRequest(http.MethodGet, "/readyz", nil)); err == nil ||
		!strings.Contains(err.Error(), "c.machinist.dev") {
		t.Errorf("the mutating webhook does not trust the certificate, and the process is ready: %v", err)
	}
	step()
	trusted("after one bundle was cleared")
	if validating.ResourceVersion != version {
		t.Error("the configuration with the right bundles was written too")
	}
}

// A starting process accepts connections before it has read its certificate.
//
// Rule: no-request-lost-in-renewal.
func TestHandshakeWaitsForFirstCertificate(t *testing.T) {
	for name, present := range map[string]bool{"certificate present": true, "no certificate": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "machinist-system", Name: "webhook"}}
				c := fake.NewClientBuilder().WithObjects(secret).Build()
				k := New(Options{Secret: client.ObjectKeyFromObject(secret), Configuration: "machinist",
					Hosts: []string{"machinist.example"}, Writer: c, Clock: clock.RealClock{}, Log: logr.Discard()})
				k.reader = c
				near, far := net.Pipe()
				defer near.Close()
				defer far.Close()
				var served, connected error
				var both sync.WaitGroup
				both.Go(func() {
					served = tls.Server(near, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: k.GetCertificate}).
						HandshakeContext(t.Context())
				})
				both.Go(func() {
					connected = tls.Client(far, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context())
				})
				synctest.Wait()
				if present {
					if _, err := k.Reconcile(t.Context(), reconcile.Request{}); err != nil {
						t.Fatal(err)
					}
					if err := c.Get(t.Context(), k.Secret, secret); err != nil {
						t.Fatal(err)
					}
					presenter{k}.present(secret)
				}
				both.Wait()
				if (served == nil) != present || (connected == nil) != present {
					t.Errorf("the handshake ended with %v at the server and %v at the client", served, connected)
				}
			})
		})
	}
}
