//go:build e2e

package e2e

import (
	"context"
	"sync"
	"time"

	"machinist.dev/machinist/internal/process"
)

// killedLease lets a successor of a killed leader start within seconds. It is long enough for a busy machine to keep.
var killedLease = []string{"--leader-election-lease-duration=8s", "--leader-election-renew-deadline=6s",
	"--leader-election-retry-period=1s"}

// crashPatience is how long a successor may take to lead: a minute and more where the machine has other work.
const crashPatience = 3 * time.Minute

// supervised starts processes anew that end by themselves, as a Deployment does: one that could not keep its lease
// ends.
type supervised struct {
	m *machinist
	// mu is held by whoever ends or starts a process.
	mu sync.Mutex
}

func (m *machinist) supervise(processes ...*process.Process) *supervised {
	s := &supervised{m: m}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, p := range processes {
		all.Go(func() { s.keep(ctx, p) })
	}
	m.t.Cleanup(func() { stop(); all.Wait() })
	return s
}

func (s *supervised) keep(ctx context.Context, p *process.Process) {
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
			if err := p.Start(); err != nil {
				s.m.t.Errorf("start %s again: %v", p.Name, err)
			}
		}
		s.mu.Unlock()
	}
}

// crash ends a process by SIGKILL, starts it anew and returns when that leads.
func (s *supervised) crash(p *process.Process) {
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
