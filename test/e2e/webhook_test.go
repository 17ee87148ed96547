//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/test/env"
)

// Two replicas of the manager run behind a TCP proxy. A client sends valid and invalid Machines while the certificate
// and its CA are replaced, and while each replica restarts. The API server ignores an unreachable webhook. So the test
// detects a lost request, because the invalid Machine is admitted.
//
// Rules: webhook-certificate-maintained, no-request-lost-in-renewal.
func TestNoAdmissionRequestIsLost(t *testing.T) {
	t.Parallel()
	front := newProxy(t)
	var first string
	m := start(t, stack.Options{NoTarget: true, WebhookProxy: func(program, address string) string {
		if program != stack.Manager {
			return address
		}
		first = address
		front.Add(address)
		return front.Address()
	}})
	second := freeAddress(t)
	standby, err := m.NewManager(stack.Manager+"-2", stack.WebhookArgs(second)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := standby.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Stop(15 * time.Second) })
	w := &webhook{machinist: m, replicas: []string{first, second}}

	var expiring []byte
	for try := 0; !bytes.Equal(w.secret().Data["ca.crt"], expiring); try++ {
		// On a busy computer, the next CA may replace the expiring CA before all processes have read the expiring CA.
		if try == 3 {
			t.Fatal("an expiring CA was replaced before it was used")
		}
		expiring = w.useExpiringCA()
		w.awaitPresented(first, second)
		eventually(t, "the webhook is trusted again", func() (bool, string) {
			err := w.trySend(0, true)
			return err == nil, fmt.Sprint(err)
		})
	}
	front.Add(second)

	s := w.stream(8)
	w.connectRepeatedly(s)
	w.countDuring(s, "the CA is replaced", func() {
		w.awaitSecret("another CA in the Secret", func(d map[string][]byte) bool {
			return !bytes.Equal(d["ca.crt"], expiring) && d["next-ca.crt"] == nil
		})
		w.awaitPresented(first, second)
	})
	w.countDuring(s, "the certificate is replaced", func() {
		before := w.secret().Data
		w.change(func(d map[string][]byte) { delete(d, corev1.TLSCertKey) })
		after := w.awaitSecret("another certificate in the Secret", func(d map[string][]byte) bool {
			return len(d[corev1.TLSCertKey]) > 0 && !bytes.Equal(d[corev1.TLSCertKey], before[corev1.TLSCertKey])
		})
		if !bytes.Equal(after["ca.crt"], before["ca.crt"]) {
			t.Error("the CA was replaced together with the certificate")
		}
		w.awaitPresented(first, second)
	})
	for range 2 {
		w.countDuring(s, "the standby is restarted", func() { w.restart(standby, second) })
		w.countDuring(s, "the leader is restarted", func() {
			w.restart(m.Manager, first)
			if err := m.AwaitLeader(context.Background(), standby); err != nil {
				t.Error(err)
			}
		})
		m.Manager, standby, first, second = standby, m.Manager, second, first
	}
	total, lost := s.end()
	t.Logf("%d requests", total)
	if len(lost) > 0 {
		t.Errorf("%d of %d requests were lost:\n%s", len(lost), total, strings.Join(lost[:min(len(lost), 10)], "\n"))
	}
	for _, replica := range w.replicas {
		if accepted, rejected := front.Connections(replica); accepted == 0 || rejected > 0 {
			t.Errorf("replica %s: got %d connections, and %d that no replica accepted; want some and none", replica, accepted,
				rejected)
		}
	}
}

type webhook struct {
	*machinist
	replicas []string
}

// trySend sends a Machine. If invalid is true, the Machine has a mistake that only the webhook detects. trySend
// returns an error if a valid Machine is refused or an invalid Machine is admitted.
func (w *webhook) trySend(n int, invalid bool) error {
	machine := &v1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("stream-%d", n)},
		Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: examples.SmallClass}},
	}
	if invalid {
		machine.Spec.Node.Labels = map[string]string{v1beta1.NodeLabelMachine: "x"}
	}
	err := w.control.Create(context.Background(), machine, client.DryRunAll)
	switch {
	case invalid && err == nil:
		return fmt.Errorf("invalid machine %d was admitted", n)
	case invalid && !(apierrors.IsInvalid(err) && strings.Contains(err.Error(), "spec.node.labels[machinist.dev/machine]")):
		return fmt.Errorf("invalid machine %d: %w", n, err)
	case !invalid && err != nil:
		return fmt.Errorf("valid machine %d: %w", n, err)
	}
	return nil
}

type stream struct {
	stop  chan struct{}
	tasks sync.WaitGroup

	mu      sync.Mutex
	sent    int
	lost    []string
	changed *sync.Cond
}

func (w *webhook) stream(goroutines int) *stream {
	s := &stream{stop: make(chan struct{})}
	s.changed = sync.NewCond(&s.mu)
	for range goroutines {
		s.tasks.Go(func() {
			for {
				select {
				case <-s.stop:
					return
				default:
				}
				s.mu.Lock()
				s.sent++
				n := s.sent
				s.mu.Unlock()
				if err := w.trySend(n, n%2 == 0); err != nil {
					s.recordLoss(err)
				}
				s.mu.Lock()
				s.changed.Broadcast()
				s.mu.Unlock()
			}
		})
	}
	return s
}

// connectRepeatedly connects to the replicas all the time, like an API server that opens a connection for each request.
// A connection may use the CA bundle that was valid at the previous request.
func (w *webhook) connectRepeatedly(s *stream) {
	s.tasks.Go(func() {
		for {
			select {
			case <-s.stop:
				return
			default:
			}
			configuration := &admissionv1.ValidatingWebhookConfiguration{}
			if err := w.control.Get(context.Background(), client.ObjectKey{Name: stack.Manager}, configuration); err != nil {
				s.recordLoss(err)
				return
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(configuration.Webhooks[0].ClientConfig.CABundle)
			for _, replica := range w.replicas {
				conn, err := tls.Dial("tcp", replica, &tls.Config{RootCAs: roots, ServerName: "localhost"})
				if err == nil {
					conn.Close()
				} else if untrusted, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
					s.recordLoss(fmt.Errorf("%s: %w", replica, untrusted))
				} // Otherwise, the replica is unreachable, and requests reach the other replica.
			}
		}
	})
}

func (s *stream) recordLoss(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = append(s.lost, time.Now().Format("05.000 ")+err.Error())
}

func (s *stream) awaitSent(more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for until := s.sent + more; s.sent < until; {
		s.changed.Wait()
	}
}

func (s *stream) count() (n, lost int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent, len(s.lost)
}

func (s *stream) end() (int, []string) {
	close(s.stop)
	s.tasks.Wait()
	return s.sent, s.lost
}

func (w *webhook) countDuring(s *stream, what string, f func()) {
	w.t.Helper()
	s.awaitSent(20)
	n, lost := s.count()
	begun := time.Now()
	f()
	s.awaitSent(20)
	more, lostNow := s.count()
	w.t.Logf("%s: %s, %d requests, %d lost", what, time.Since(begun).Round(10*time.Millisecond), more-n, lostNow-lost)
}

func (w *webhook) restart(p *child.Process, address string) {
	w.t.Helper()
	if err := p.Stop(15 * time.Second); err != nil {
		w.t.Errorf("stop %s: %v", p.Name, err)
	}
	if err := p.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.awaitPresented(address)
}

func (w *webhook) secretKey() client.ObjectKey {
	return client.ObjectKey{Namespace: stack.SystemNamespace, Name: stack.Manager + "-webhook"}
}

func (w *webhook) secret() *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{}
	if err := w.control.Get(context.Background(), w.secretKey(), secret); err != nil {
		w.t.Fatal(err)
	}
	return secret
}

func (w *webhook) change(f func(map[string][]byte)) {
	w.t.Helper()
	eventually(w.t, "the Secret is changed", func() (bool, string) {
		secret := w.secret()
		f(secret.Data)
		err := w.control.Update(context.Background(), secret)
		return err == nil, fmt.Sprint(err)
	})
}

func (w *webhook) awaitSecret(what string, done func(map[string][]byte) bool) (data map[string][]byte) {
	w.t.Helper()
	env.Await(w.t, w.control, &corev1.SecretList{}, what, func(l *corev1.SecretList) (bool, string) {
		for i := range l.Items {
			if l.Items[i].Name == w.secretKey().Name {
				data = l.Items[i].Data
				return done(data), fmt.Sprintf("a Secret with %d entries", len(data))
			}
		}
		return false, "no Secret"
	}, client.InNamespace(w.secretKey().Namespace))
	return data
}

func (w *webhook) awaitPresented(replicas ...string) {
	w.t.Helper()
	for _, replica := range replicas {
		eventually(w.t, replica+" presents the certificate of the Secret", func() (bool, string) {
			// This check only compares certificates. The API server verifies the certificate with the CA of the
			// webhook.
			conn, err := tls.Dial("tcp", replica, &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				return false, err.Error()
			}
			defer conn.Close()
			block, _ := pem.Decode(w.secret().Data[corev1.TLSCertKey])
			got := conn.ConnectionState().PeerCertificates[0]
			return block != nil && bytes.Equal(got.Raw, block.Bytes), "the replica presents another certificate"
		})
	}
}

// useExpiringCA writes another CA and a certificate of this CA into the Secret. The CA expires so soon that the manager
// must replace it.
func (w *webhook) useExpiringCA() []byte {
	w.t.Helper()
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	maker := &rotator.CertRotator{CAName: "machinist-webhooks", CAOrganization: "machinist", DNSName: "localhost",
		ExtKeyUsages: &usage}
	begin, end := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	ca, err := maker.CreateCACert(begin, end)
	if err != nil {
		w.t.Fatal(err)
	}
	cert, key, err := maker.CreateCertPEM(ca, begin, end)
	if err != nil {
		w.t.Fatal(err)
	}
	w.change(func(d map[string][]byte) {
		clear(d)
		d["ca.crt"], d["ca.key"], d[corev1.TLSCertKey], d[corev1.TLSPrivateKeyKey] = ca.CertPEM, ca.KeyPEM, cert, key
	})
	return ca.CertPEM
}
