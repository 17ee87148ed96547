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

// Leases, by flags of a process.
var (
	// patientLease is that of every process for which a scenario asks no other: who cannot keep its Lease ends, and an
	// API server whose machine has other work may leave a renewal without an answer for ten seconds.
	patientLease = []string{"--leader-election-lease-duration=60s", "--leader-election-renew-deadline=50s"}
	// defaultLease is what processes have of which nothing is asked.
	defaultLease = []string{"--leader-election-lease-duration=15s", "--leader-election-renew-deadline=10s"}
	// shortLease lets a successor of a killed leader start within seconds. As a busy machine may lose it, who has it is
	// supervised where other scenarios run beside, unless his end is what is tested.
	shortLease = []string{"--leader-election-lease-duration=8s", "--leader-election-renew-deadline=6s",
		"--leader-election-retry-period=1s"}
)

// crashPatience is how long a successor may take to lead: a minute and more where the machine has other work.
const crashPatience = 3 * time.Minute

// supervised starts processes anew that end by themselves, as a Deployment does: one that could not keep its lease
// ends.
type supervised struct {
	m *machinist
	// mu is held by whoever ends or starts a process.
	mu sync.Mutex
	// ends are the errors with which processes ended by themselves.
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
		if !p.Running() && ctx.Err() == nil {
			s.ends[p] = append(s.ends[p], p.Err())
			if err := p.Start(); err != nil {
				s.m.t.Errorf("start %s again: %v", p.Name, err)
			}
		}
		s.mu.Unlock()
	}
}

// crash ends a process by SIGKILL, starts it anew and returns when that leads.
func (s *supervised) crash(p *child.Process) {
	s.m.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := p.Kill(); err != nil {
		s.m.t.Fatal(err)
	}
	for begun := time.Now(); ; {
		if !p.Running() {
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

// endedForLeases says how often a process ended by itself, which no process may do but for its Lease.
func (s *supervised) endedForLeases(p *child.Process) int {
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
