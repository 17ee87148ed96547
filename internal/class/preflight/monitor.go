package preflight

import (
	"context"
	"slices"
	"sync"
	"time"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"k8s.io/utils/clock"
)

const (
	// checkInterval is the time between two checks if there is no problem.
	checkInterval = 10 * time.Minute
	// problemInterval is the time between two checks while there is a problem.
	problemInterval = 30 * time.Second
	// guessInterval is the time between two checks while it is open whether a suspected problem is real.
	guessInterval = time.Minute
)

// Verdict says whether a guessed problem is real, judged by the machines that have joined or failed to join.
type Verdict int

const (
	// VerdictOpen means that the problem is neither proven nor refuted: no machine has joined yet, and no machine has
	// waited long for its Node.
	VerdictOpen Verdict = iota
	// VerdictProven is the verdict that the problem is real: a machine has waited long for its Node, and no machine
	// has joined.
	VerdictProven
	// VerdictRefuted is the verdict that a suspected problem does not exist, because a machine has joined the
	// cluster.
	VerdictRefuted
)

// Monitor repeats the checks while the process is the leader, and keeps the problems without the warnings. A nil
// Monitor has no findings.
type Monitor struct {
	// Check makes the checks. An error is logged, and the findings still count.
	Check func(context.Context) ([]Finding, error)
	// Judge returns the verdict about all findings whose field IsUncertain is true.
	Judge func(context.Context) Verdict
	// OnChange is called after a change of the findings.
	OnChange func(context.Context)
	Clock    clock.WithTicker

	mu       sync.Mutex
	findings []Finding
}

// Findings returns the problems that the last checks found.
func (m *Monitor) Findings() []Finding {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.findings)
}

// Start implements manager.Runnable.
func (m *Monitor) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.Clock.After(m.check(ctx)):
		}
	}
}

func (m *Monitor) check(ctx context.Context) time.Duration {
	all, err := m.Check(ctx)
	if err != nil && ctx.Err() == nil {
		logf.FromContext(ctx).Info("Could not check everything that machines need to join", "error", err.Error())
	}
	next, found := checkInterval, []Finding(nil)
	for _, f := range all {
		switch {
		case f.IsUncertain:
			verdict := m.Judge(ctx)
			if verdict == VerdictProven {
				found = append(found, f)
			} else if verdict == VerdictOpen {
				next = guessInterval
			}
		case !f.Warning:
			found = append(found, f)
		}
	}
	if len(found) > 0 {
		next = problemInterval
	}
	m.mu.Lock()
	changed := !slices.Equal(found, m.findings)
	if changed {
		m.findings = found
	}
	m.mu.Unlock()
	if changed {
		m.OnChange(ctx)
	}
	return next
}
