package admission

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	"golang.org/x/sync/semaphore"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// startLimitedServer starts a server with limits. The returned function sends one HTTP/2 request.
func startLimitedServer(t *testing.T, l *limits, next http.HandlerFunc) (send func(body io.Reader) (int, http.Header)) {
	t.Helper()
	s := httptest.NewUnstartedServer(l.guard(next))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return func(body io.Reader) (int, http.Header) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, body)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Error(err)
		}
		return answer.StatusCode, answer.Header
	}
}

// chunked hides the type of a reader. The HTTP client then does not know the size of the body, and sends the body
// without a Content-Length.
type chunked struct{ io.Reader }

// Rule: webhook-requests-limited.
func TestBodiesAreLimited(t *testing.T) {
	received := 0
	send := startLimitedServer(t, newLimits(false), func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if received = len(text); err != nil {
			t.Error(err)
		}
	})
	for _, test := range []struct{ size, want int }{
		{0, http.StatusOK}, {100, http.StatusOK}, {3 << 20, http.StatusOK}, {maxBody, http.StatusOK},
		{maxBody + 1, http.StatusRequestEntityTooLarge}, {7 << 20, http.StatusRequestEntityTooLarge},
	} {
		text := strings.Repeat("x", test.size)
		for name, body := range map[string]io.Reader{"announced": strings.NewReader(text),
			"not announced": chunked{strings.NewReader(text)}} {
			received = -1
			code, _ := send(body)
			if code != test.want || code == http.StatusOK && received != test.size {
				t.Errorf("%d bytes, %s: status %d, want %d; the webhook got %d bytes", test.size, name, code, test.want, received)
			}
		}
	}
}

// Rule: webhook-requests-limited.
func TestBodyMustArriveInTime(t *testing.T) {
	l := newLimits(false)
	l.arrival = 50 * time.Millisecond
	send := startLimitedServer(t, l, func(http.ResponseWriter, *http.Request) { t.Error("the webhook got an incomplete request") })
	body, part := io.Pipe()
	defer part.Close()
	go func() { _, _ = part.Write([]byte("{")) }()
	if code, _ := send(body); code != http.StatusRequestTimeout {
		t.Errorf("status %d, want %d", code, http.StatusRequestTimeout)
	}
	if !l.bodies.TryAcquire(maxBodies) {
		t.Error("memory is still reserved")
	}
}

// Rule: webhook-requests-limited.
func TestRequestsBeyondTheLimitsAreRefusedAtOnce(t *testing.T) {
	refused := func(t *testing.T, code int, header http.Header) {
		t.Helper()
		if code != http.StatusTooManyRequests || header.Get("Retry-After") != "1" {
			t.Errorf("status %d, Retry-After %q; want %d and 1", code, header.Get("Retry-After"), http.StatusTooManyRequests)
		}
	}
	t.Run("requests that are validated", func(t *testing.T) {
		l := newLimits(false)
		l.work, l.wait = semaphore.NewWeighted(1), time.Millisecond
		began, end := make(chan struct{}), make(chan struct{})
		send := startLimitedServer(t, l, func(http.ResponseWriter, *http.Request) {
			close(began)
			<-end
		})
		var first sync.WaitGroup
		first.Go(func() {
			if code, _ := send(strings.NewReader("{}")); code != http.StatusOK {
				t.Errorf("the first request: status %d", code)
			}
		})
		<-began
		code, header := send(strings.NewReader("{}"))
		refused(t, code, header)
		close(end)
		first.Wait()
		if !l.bodies.TryAcquire(maxBodies) || !l.work.TryAcquire(1) {
			t.Error("a request still counts after its end")
		}
	})
	t.Run("bodies", func(t *testing.T) {
		l := newLimits(false)
		l.bodies = semaphore.NewWeighted(2 * bodyStep)
		send := startLimitedServer(t, l, func(http.ResponseWriter, *http.Request) {})
		code, header := send(strings.NewReader(strings.Repeat("x", 2*bodyStep+1)))
		refused(t, code, header)
		if code, _ := send(strings.NewReader(strings.Repeat("x", 2*bodyStep))); code != http.StatusOK {
			t.Errorf("a request within the limit: status %d", code)
		}
	})
}

func authority(t *testing.T) (pem []byte, pair tls.Certificate) {
	t.Helper()
	maker := &rotator.CertRotator{CAName: "test", DNSName: "client",
		ExtKeyUsages: &[]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	begin, end := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	ca, err := maker.CreateCACert(begin, end)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := maker.CreateCertPEM(ca, begin, end)
	if err != nil {
		t.Fatal(err)
	}
	if pair, err = tls.X509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	return ca.CertPEM, pair
}

// Rule: webhook-requests-limited.
func TestOnlyVerifiedClientsAreServed(t *testing.T) {
	first, client := authority(t)
	second, other := authority(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(pem []byte, changed time.Time) {
		t.Helper()
		if err := os.WriteFile(file, pem, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, changed, changed); err != nil {
			t.Fatal(err)
		}
	}
	write(first, time.Unix(1, 0))
	s := httptest.NewUnstartedServer(newLimits(true).guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	s.EnableHTTP2, s.TLS = true, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{client}}
	verifyClients(s.TLS, file)
	s.StartTLS()
	t.Cleanup(s.Close)
	send := func(certificates ...tls.Certificate) (int, error) {
		c := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}}}
		defer c.CloseIdleConnections()
		answer, err := c.Post(s.URL, "application/json", strings.NewReader("{}"))
		if err != nil {
			return 0, err
		}
		answer.Body.Close()
		return answer.StatusCode, nil
	}
	if code, err := send(); code != http.StatusUnauthorized {
		t.Errorf("without a certificate: status %d, error %v", code, err)
	}
	if code, err := send(client); code != http.StatusOK {
		t.Errorf("with a certificate of the authority: status %d, error %v", code, err)
	}
	if code, err := send(other); err == nil {
		t.Errorf("with a certificate of another authority: status %d", code)
	}
	// The file is read again after a change. If the file is unreadable, the previous authorities still apply.
	write(second, time.Unix(2, 0))
	if code, err := send(other); code != http.StatusOK {
		t.Errorf("after the authority was replaced: status %d, error %v", code, err)
	}
	write([]byte("half a certificate"), time.Unix(3, 0))
	if code, err := send(other); code != http.StatusOK {
		t.Errorf("while the file is written: status %d, error %v", code, err)
	}
	if code, err := send(client); err == nil {
		t.Errorf("with a certificate of the former authority: status %d", code)
	}
}

// countingClient is a client that counts list requests. Each request waits until release is closed.
type countingClient struct {
	reader
	lists   *atomic.Int64
	release chan struct{}
}

func (c countingClient) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	c.lists.Add(1)
	<-c.release
	return c.reader.List(ctx, into, options...)
}

func machineOf(class string) *v1beta1.Machine {
	return &v1beta1.Machine{Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: class}}}
}

// Rule: webhook-requests-limited.
func TestUnknownClassesCauseFewReads(t *testing.T) {
	live := countingClient{lists: &atomic.Int64{}, release: make(chan struct{})}
	close(live.release)
	core, clock := NewCoreWebhook(scheme(), reader{}, live), testclock.NewFakePassiveClock(time.Now())
	core.clock = clock
	for _, want := range []int64{readsAtOnce, readsPerSecond} {
		live.lists.Store(0)
		warnings := 0
		for i := range 200 {
			answer := core.Handle(t.Context(), request(t, "Machine", machineOf(strings.Repeat("x", i+1)), nil))
			if !answer.Allowed {
				t.Fatalf("refused: %v", answer.Result)
			}
			warnings += len(answer.Warnings)
		}
		if n := live.lists.Load(); n != want || warnings != int(want) {
			t.Errorf("%d reads and %d warnings for 200 requests, want %d of both", n, warnings, want)
		}
		clock.SetTime(clock.Now().Add(time.Second))
	}
}

// Rule: webhook-requests-limited.
func TestRequestsForTheSameClassShareARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live := countingClient{lists: &atomic.Int64{}, release: make(chan struct{})}
		core := NewCoreWebhook(scheme(), reader{}, live)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				answer := core.Handle(t.Context(), request(t, "Machine", machineOf("large"), nil))
				if !answer.Allowed || len(answer.Warnings) != 1 {
					t.Errorf("allowed=%v, warnings %q; want a warning that the class does not exist", answer.Allowed, answer.Warnings)
				}
			})
		}
		synctest.Wait()
		close(live.release)
		all.Wait()
		if n := live.lists.Load(); n != 1 {
			t.Errorf("%d reads, want one", n)
		}
	})
}
