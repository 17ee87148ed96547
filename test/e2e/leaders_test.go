//go:build e2e

package e2e

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/platform/process"
)

// workers is how many machines the provider works on at once in these tests, and so how many of its calls can be past
// the fence's check at one moment.
const workers = 4

// witness stands between one provider process and the cloud and writes down what that process changes.
type witness struct {
	mu      sync.Mutex
	changes []time.Time
}

// stand returns the address to give to the process instead of the cloud's.
func (w *witness) stand(t *testing.T, cloud string) string {
	to, err := url.Parse(cloud)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		if in.Method != http.MethodGet {
			w.mu.Lock()
			w.changes = append(w.changes, time.Now())
			w.mu.Unlock()
		}
		proxy.ServeHTTP(out, in)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func (w *witness) changesSince(since time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, at := range w.changes {
		if at.After(since) {
			n++
		}
	}
	return n
}

// A leader that was frozen past its lease triggers in a world that has another leader. It must not act in it.
//
// Rule: lease-counts-from-send.
func TestAFrozenLeaderDoesNotActWhenItResumes(t *testing.T) {
	t.Parallel()
	const replicas = 40
	w := &witness{}
	m := start(t, stack.Options{
		ProviderArgs: append([]string{"--concurrent-machines=4"}, shortLease...),
		CloudProxy:   func(cloud string) string { return w.stand(t, cloud) },
	})
	m.quick()
	m.slowCloud()
	m.fleet(replicas, nil)
	eventually(t, "creation is under way", func() (bool, string) {
		return len(m.instances()) >= 5, "fewer than 5 instances"
	})

	signal(t, m.Provider, syscall.SIGSTOP)
	other, err := m.NewProvider("machinist-provider-sim-2", shortLease...)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Stop(15 * time.Second) })
	if err := m.AwaitLeader(context.Background(), other); err != nil {
		t.Fatal(err)
	}
	m.supervise(other)
	eventually(t, "the new leader is running", func() (bool, string) {
		return len(m.instances()) >= 15, "fewer than 15 instances"
	})

	resumed := time.Now()
	signal(t, m.Provider, syscall.SIGCONT)
	mustEndFenced(t, m.Provider)
	if n := w.changesSince(resumed); n > workers {
		t.Errorf("the frozen leader sent %d changes after it triggered; only the %d whose check was before it froze may still go out", n, workers)
	}

	m.running(replicas)
	m.noTwins()
	if made := len(m.instances()); made != replicas {
		t.Errorf("the cloud made %d instances for %d machines", made, replicas)
	}
}

// A lease that somebody else holds is lost, whatever its time says.
//
// Rule: lease-counts-from-send.
func TestALeaderWhoseLeaseIsStolenEnds(t *testing.T) {
	t.Parallel()
	const replicas = 30
	w := &witness{}
	m := start(t, stack.Options{
		ProviderArgs: append([]string{"--concurrent-machines=4"}, shortLease...),
		CloudProxy:   func(cloud string) string { return w.stand(t, cloud) },
	})
	m.quick()
	m.slowCloud()
	m.fleet(replicas, nil)
	eventually(t, "creation is under way", func() (bool, string) {
		return len(m.instances()) >= 3, "fewer than 3 instances"
	})

	m.steal(stack.Provider)
	mustEndFenced(t, m.Provider)
	ended := time.Now()
	if n := w.changesSince(ended); n > 0 {
		t.Errorf("%d changes came from a process that has ended", n)
	}
	if err := m.Provider.Start(); err != nil {
		t.Fatal(err)
	}
	if err := m.AwaitLeader(context.Background(), m.Provider); err != nil {
		t.Fatal(err)
	}
	m.supervise(m.Provider)
	m.running(replicas)
	m.noTwins()
	if made := len(m.instances()); made != replicas {
		t.Errorf("the cloud made %d instances for %d machines", made, replicas)
	}
}

// steal writes somebody else into a lease.
func (m *machinist) steal(name string) {
	m.t.Helper()
	lease := &coordinationv1.Lease{}
	if err := m.control.Get(context.Background(), client.ObjectKey{Namespace: stack.SystemNamespace, Name: name},
		lease); err != nil {
		m.t.Fatal(err)
	}
	before := lease.DeepCopy()
	thief, now := "thief", metav1.NowMicro()
	lease.Spec.HolderIdentity, lease.Spec.AcquireTime, lease.Spec.RenewTime = &thief, &now, &now
	if err := m.control.Patch(context.Background(), lease, client.MergeFrom(before)); err != nil {
		m.t.Fatalf("steal the lease %s: %v", name, err)
	}
}

func signal(t *testing.T, p *child.Process, s syscall.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// mustEndFenced waits until the process has ended as one that lost its lease.
func mustEndFenced(t *testing.T, p *child.Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		t.Fatal("the process still runs a minute after it lost its lease")
	}
	var exit *exec.ExitError
	if err := p.Err(); !errors.As(err, &exit) || exit.ExitCode() != process.ExitFenced {
		t.Errorf("the process ended with %v, want exit code %d; %s", err, process.ExitFenced, p.LogTail())
	}
}
