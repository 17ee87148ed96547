//go:build e2e

package e2e

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"time"

	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/internal/platform/process"
)

// These flags configure the Lease of a process.
var (
	// patientLease contains the default flags of these tests. On a busy computer, the API server may take more than ten
	// seconds to answer a renewal, and a process that cannot renew its Lease ends.
	patientLease = []string{"--leader-election-lease-duration=60s", "--leader-election-renew-deadline=50s"}
	defaultLease = []string{"--leader-election-lease-duration=15s", "--leader-election-renew-deadline=10s"}
	// shortLease lets a successor of a killed leader start within seconds. On a busy computer, a process may lose
	// such a Lease. So parallel tests restart processes with such a Lease, unless the test checks how the processes
	// end.
	shortLease = []string{"--leader-election-lease-duration=8s", "--leader-election-renew-deadline=6s",
		"--leader-election-retry-period=1s"}
)

// crashPatience limits the time until a successor leads. On a busy computer, this may take more than a minute.
const crashPatience = 3 * time.Minute

// supervised is a supervisor of processes. The supervisor restarts each process that ends, as a Deployment would. A
// process ends if it cannot renew its Lease.
type supervised struct {
	m    *machinist
	mu   sync.Mutex
	ends map[*child.Process][]error
}

func (m *machinist) supervise(processes ...*child.Process) *supervised {
	s := &supervised{m: m, ends: map[*child.Process][]error{}}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, p := range processes {
		all.Go(func() { s.keep(ctx, p) })
	}
	m.t.Cleanup(func() { stop(); all.Wait() })
	return s
}

func (s *supervised) keep(ctx context.Context, p *child.Process) {
	for {
		s.mu.Lock()
		done := p.Done()
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-done:
		}
		s.mu.Lock()
		if !p.IsRunning() && ctx.Err() == nil {
			s.ends[p] = append(s.ends[p], p.Err())
			if err := p.Start(); err != nil {
				s.m.t.Errorf("start %s again: %v", p.Name, err)
			}
		}
		s.mu.Unlock()
	}
}

func (s *supervised) crash(p *child.Process) {
	s.m.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := p.Kill(); err != nil {
		s.m.t.Fatal(err)
	}
	for begun := time.Now(); ; {
		if !p.IsRunning() {
			if err := p.Start(); err != nil {
				s.m.t.Fatal(err)
			}
		}
		err := s.m.AwaitLeader(context.Background(), p)
		if err == nil {
			return
		}
		if time.Since(begun) > crashPatience {
			s.m.t.Fatal(err)
		}
	}
}

func (s *supervised) leaseExits(p *child.Process) int {
	s.m.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.ends[p] {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != process.ExitFenced {
			s.m.t.Errorf("%s ended with %v, want exit code %d", p.Name, err, process.ExitFenced)
		}
	}
	return len(s.ends[p])
}
