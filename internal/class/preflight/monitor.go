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
	// These are the times between two checks: every while there is no problem, everyWrong while there is a problem, and
	// everyGuess while a guess is neither proven nor refuted.
	every, everyWrong, everyGuess = 10 * time.Minute, 30 * time.Second, time.Minute
)

// Verdict states whether the machines of the cluster prove or refute a guess.
type Verdict int

const (
	// Open: no machine has joined, and no machine has waited for a long time.
	Open Verdict = iota
	// Proven: a machine has waited for its Node for a long time, and no machine has joined.
	Proven
	// Refuted: a machine has joined.
	Refuted
)

// Monitor makes the checks periodically while the process is the leader. It stores the problems that the last
// checks found. It does not store warnings. A nil Monitor has no findings.
type Monitor struct {
	// Check makes the checks. If Check returns an error, the Monitor logs the error and still uses the findings.
	Check func(context.Context) ([]Finding, error)
	// Judge returns whether the machines of the cluster prove or refute a guess, which is a finding with the field
	// Guess.
	Judge func(context.Context) Verdict
	// Changed is called after the findings have changed.
	Changed func(context.Context)
	Clock   clock.WithTicker

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

// check makes the checks once, and returns the time until the next check.
func (m *Monitor) check(ctx context.Context) time.Duration {
	all, err := m.Check(ctx)
	if err != nil && ctx.Err() == nil {
		logf.FromContext(ctx).Info("Could not make all checks of what machines need to join", "error", err.Error())
	}
	next, found := every, []Finding(nil)
	for _, f := range all {
		switch {
		case f.Guess:
			verdict := m.Judge(ctx)
			if verdict == Proven {
				found = append(found, f)
			} else if verdict == Open {
				next = everyGuess
			}
		case !f.Warning:
			found = append(found, f)
		}
	}
	if len(found) > 0 {
		next = everyWrong
	}
	m.mu.Lock()
	changed := !slices.Equal(found, m.findings)
	if changed {
		m.findings = found
	}
	m.mu.Unlock()
	if changed {
		m.Changed(ctx)
	}
	return next
}
