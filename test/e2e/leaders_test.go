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

// workers is the number of machines that a provider process handles concurrently. So when a provider loses its Lease,
// at most this number of cloud calls can still be in progress.
const workers = 4

// changeRecorder is a proxy between a provider process and the cloud. changeRecorder records when the provider changes
// the cloud.
type changeRecorder struct {
	mu      sync.Mutex
	changes []time.Time
}

func (w *changeRecorder) serve(t *testing.T, cloud string) string {
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

func (w *changeRecorder) changesSince(since time.Time) int {
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

// A leader is frozen for longer than its lease duration and resumes while another process leads. The frozen leader must
// not act.
//
// Rule: lease-counts-from-send.
func TestFrozenLeaderDoesNotActAfterResume(t *testing.T) {
	t.Parallel()
	const replicas = 40
	w := &changeRecorder{}
	m := start(t, stack.Options{
		ProviderArgs: append([]string{"--concurrent-machines=4"}, shortLease...),
		CloudProxy:   func(cloud string) string { return w.serve(t, cloud) },
	})
	m.removeDelays()
	m.slowCloud()
	m.createFleet(replicas, nil)
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
	awaitFencedExit(t, m.Provider)
	if n := w.changesSince(resumed); n > workers {
		t.Errorf("got %d changes of the frozen leader after it resumed, want at most the %d that had passed the fence before",
			n, workers)
	}

	m.awaitRunning(replicas)
	m.wantNoTwins()
	if made := len(m.instances()); made != replicas {
		t.Errorf("the cloud created %d instances for %d machines", made, replicas)
	}
}

// A process has lost its Lease as soon as the Lease has another holder, even before the Lease expires.
//
// Rule: lease-counts-from-send.
func TestLeaderEndsWhenLeaseIsStolen(t *testing.T) {
	t.Parallel()
	const replicas = 30
	w := &changeRecorder{}
	m := start(t, stack.Options{
		ProviderArgs: append([]string{"--concurrent-machines=4"}, shortLease...),
		CloudProxy:   func(cloud string) string { return w.serve(t, cloud) },
	})
	m.removeDelays()
	m.slowCloud()
	m.createFleet(replicas, nil)
	eventually(t, "creation is under way", func() (bool, string) {
		return len(m.instances()) >= 3, "fewer than 3 instances"
	})

	m.stealLeaseOf(stack.Provider)
	awaitFencedExit(t, m.Provider)
	ended := time.Now()
	if n := w.changesSince(ended); n > 0 {
		t.Errorf("got %d changes of a process that has ended, want none", n)
	}
	if err := m.Provider.Start(); err != nil {
		t.Fatal(err)
	}
	if err := m.AwaitLeader(context.Background(), m.Provider); err != nil {
		t.Fatal(err)
	}
	m.supervise(m.Provider)
	m.awaitRunning(replicas)
	m.wantNoTwins()
	if made := len(m.instances()); made != replicas {
		t.Errorf("the cloud created %d instances for %d machines", made, replicas)
	}
}

func (m *machinist) stealLeaseOf(name string) {
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
		m.t.Fatalf("change the Lease %s: %v", name, err)
	}
}

func signal(t *testing.T, p *child.Process, s syscall.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func awaitFencedExit(t *testing.T, p *child.Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		t.Fatal("the process is still running a minute after it lost its Lease")
	}
	var exit *exec.ExitError
	if err := p.Err(); !errors.As(err, &exit) || exit.ExitCode() != process.ExitFenced {
		t.Errorf("the process ended with %v, want exit code %d; %s", err, process.ExitFenced, p.LogTail())
	}
}
