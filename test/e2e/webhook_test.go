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

// Two replicas of the manager stand behind a proxy that knows of connections only. While somebody applies Machines,
// good ones and bad ones, the certificate and its authority are replaced and each replica ends and comes back. The
// webhook may be unreachable without harm, so a request that does not reach it shows as a bad Machine that is admitted.
//
// Rules: webhook-certificate-maintained, no-request-lost-in-renewal.
func TestNoRequestForAdmissionIsLost(t *testing.T) {
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

	var ending []byte
	for try := 0; !bytes.Equal(w.secret().Data["ca.crt"], ending); try++ {
		// On a machine that is busy enough the next authority may follow before all know of this one.
		if try == 3 {
			t.Fatal("an authority that ends is replaced before it was ever used")
		}
		ending = w.useAuthorityThatEnds()
		w.presented(first, second)
		eventually(t, "the webhook is trusted again", func() (bool, string) {
			err := w.try(0, true)
			return err == nil, fmt.Sprint(err)
		})
	}
	front.Add(second)

	s := w.stream(8)
	w.uncertain(s)
	w.during(s, "its authority is replaced", func() {
		w.secretUntil("another authority signs", func(d map[string][]byte) bool {
			return !bytes.Equal(d["ca.crt"], ending) && d["next-ca.crt"] == nil
		})
		w.presented(first, second)
	})
	w.during(s, "its certificate is replaced", func() {
		before := w.secret().Data
		w.change(func(d map[string][]byte) { delete(d, corev1.TLSCertKey) })
		after := w.secretUntil("another certificate is there", func(d map[string][]byte) bool {
			return len(d[corev1.TLSCertKey]) > 0 && !bytes.Equal(d[corev1.TLSCertKey], before[corev1.TLSCertKey])
		})
		if !bytes.Equal(after["ca.crt"], before["ca.crt"]) {
			t.Error("a new certificate took a new authority")
		}
		w.presented(first, second)
	})
	for range 2 {
		w.during(s, "the standby ends and comes back", func() { w.restart(standby, second) })
		w.during(s, "the leader ends and comes back", func() {
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
		if given, vain := front.Connections(replica); given == 0 || vain > 0 {
			t.Errorf("%s was given %d connections, %d went to none", replica, given, vain)
		}
	}
}

// webhook is that of the manager, served by replicas.
type webhook struct {
	*machinist
	replicas []string
}

// try sends a Machine that only the webhook can refuse, if it is bad.
func (w *webhook) try(n int, bad bool) error {
	machine := &v1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("stream-%d", n)},
		Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: examples.SmallClass}},
	}
	if bad {
		machine.Spec.Node.Labels = map[string]string{v1beta1.NodeLabelMachine: "x"}
	}
	err := w.control.Create(context.Background(), machine, client.DryRunAll)
	switch {
	case bad && err == nil:
		return fmt.Errorf("bad machine %d was admitted", n)
	case bad && !(apierrors.IsInvalid(err) && strings.Contains(err.Error(), "spec.node.labels[machinist.dev/machine]")):
		return fmt.Errorf("bad machine %d: %w", n, err)
	case !bad && err != nil:
		return fmt.Errorf("good machine %d: %w", n, err)
	}
	return nil
}

// stream is somebody who applies one Machine after the other.
type stream struct {
	stop chan struct{}
	all  sync.WaitGroup

	mu    sync.Mutex
	n     int
	lost  []string
	moved *sync.Cond
}

func (w *webhook) stream(hands int) *stream {
	s := &stream{stop: make(chan struct{})}
	s.moved = sync.NewCond(&s.mu)
	for range hands {
		s.all.Go(func() {
			for {
				select {
				case <-s.stop:
					return
				default:
				}
				s.mu.Lock()
				s.n++
				n := s.n
				s.mu.Unlock()
				if err := w.try(n, n%2 == 0); err != nil {
					s.lose(err)
				}
				s.mu.Lock()
				s.moved.Broadcast()
				s.mu.Unlock()
			}
		})
	}
	return s
}

// uncertainty is an API server that connects anew all the time, and is as late in hearing of another bundle as a
// request takes.
func (w *webhook) uncertain(s *stream) {
	s.all.Go(func() {
		for {
			select {
			case <-s.stop:
				return
			default:
			}
			configuration := &admissionv1.ValidatingWebhookConfiguration{}
			if err := w.control.Get(context.Background(), client.ObjectKey{Name: stack.Manager}, configuration); err != nil {
				s.lose(err)
				return
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(configuration.Webhooks[0].ClientConfig.CABundle)
			for _, replica := range w.replicas {
				conn, err := tls.Dial("tcp", replica, &tls.Config{RootCAs: roots, ServerName: "localhost"})
				if err == nil {
					conn.Close()
				} else if untrusted, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
					s.lose(fmt.Errorf("%s: %w", replica, untrusted))
				} // Else it is unreachable, and the other one is not.
			}
		}
	})
}

func (s *stream) lose(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = append(s.lost, time.Now().Format("05.000 ")+err.Error())
}

// after returns when so many more Machines were sent.
func (s *stream) after(more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for until := s.n + more; s.n < until; {
		s.moved.Wait()
	}
}

func (s *stream) count() (n, lost int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n, len(s.lost)
}

func (s *stream) end() (int, []string) {
	close(s.stop)
	s.all.Wait()
	return s.n, s.lost
}

// during does something within the stream, and tells what was sent meanwhile.
func (w *webhook) during(s *stream, what string, f func()) {
	w.t.Helper()
	s.after(20)
	n, lost := s.count()
	begun := time.Now()
	f()
	s.after(20)
	more, lostNow := s.count()
	w.t.Logf("%s: %s, %d requests, %d lost", what, time.Since(begun).Round(10*time.Millisecond), more-n, lostNow-lost)
}

// restart ends a replica in order and starts it again, and returns when it serves.
func (w *webhook) restart(p *child.Process, address string) {
	w.t.Helper()
	if err := p.Stop(15 * time.Second); err != nil {
		w.t.Errorf("%s did not end in order: %v", p.Name, err)
	}
	if err := p.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.presented(address)
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

// change changes the data of the Secret, whoever writes it meanwhile.
func (w *webhook) change(f func(map[string][]byte)) {
	w.t.Helper()
	eventually(w.t, "the Secret is changed", func() (bool, string) {
		secret := w.secret()
		f(secret.Data)
		err := w.control.Update(context.Background(), secret)
		return err == nil, fmt.Sprint(err)
	})
}

func (w *webhook) secretUntil(what string, done func(map[string][]byte) bool) (data map[string][]byte) {
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

// presented waits until the replicas present what the Secret holds.
func (w *webhook) presented(replicas ...string) {
	w.t.Helper()
	for _, replica := range replicas {
		eventually(w.t, replica+" presents the certificate of the Secret", func() (bool, string) {
			// Whether it is trusted is the API server's to say.
			conn, err := tls.Dial("tcp", replica, &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				return false, err.Error()
			}
			defer conn.Close()
			block, _ := pem.Decode(w.secret().Data[corev1.TLSCertKey])
			got := conn.ConnectionState().PeerCertificates[0]
			return block != nil && bytes.Equal(got.Raw, block.Bytes), "it presents another one"
		})
	}
}

// useAuthorityThatEnds puts another authority into the Secret, with a certificate signed by it. It ends so soon that
// the next one is due. It returns the authority.
func (w *webhook) useAuthorityThatEnds() []byte {
	w.t.Helper()
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	maker := &rotator.CertRotator{CAName: "machinist-webhooks", CAOrganization: "machinist", DNSName: "localhost",
		ExtKeyUsages: &usage}
	begin, end := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	authority, err := maker.CreateCACert(begin, end)
	if err != nil {
		w.t.Fatal(err)
	}
	cert, key, err := maker.CreateCertPEM(authority, begin, end)
	if err != nil {
		w.t.Fatal(err)
	}
	w.change(func(d map[string][]byte) {
		clear(d)
		d["ca.crt"], d["ca.key"], d[corev1.TLSCertKey], d[corev1.TLSPrivateKeyKey] = authority.CertPEM, authority.KeyPEM, cert, key
	})
	return authority.CertPEM
}
