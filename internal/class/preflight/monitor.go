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
	// every is how often the checks are made while they find nothing, everyWrong while they find something, and everyGuess
	// while a guess is open.
	every, everyWrong, everyGuess = 10 * time.Minute, 30 * time.Second, time.Minute
)

// Verdict says what machines prove about a guess.
type Verdict int

const (
	// Open: no machine has joined, and none has waited for long.
	Open Verdict = iota
	// Proven: machines wait for their Nodes in vain.
	Proven
	// Refuted: a machine has joined.
	Refuted
)

// Monitor makes checks again and again while a process leads, and keeps what they found, warnings excepted. A nil
// Monitor finds nothing.
type Monitor struct {
	// Check makes the checks. An error is logged; what was found counts.
	Check func(context.Context) ([]Finding, error)
	// Judge says what the machines prove about a guess.
	Judge func(context.Context) Verdict
	// Changed is called after the findings have changed.
	Changed func(context.Context)
	Clock   clock.WithTicker

	mu       sync.Mutex
	findings []Finding
}

// Findings returns what the last checks found.
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
		case <-m.Clock.After(m.look(ctx)):
		}
	}
}

// look makes the checks once, and returns when to make them again.
func (m *Monitor) look(ctx context.Context) time.Duration {
	all, err := m.Check(ctx)
	if err != nil && ctx.Err() == nil {
		logf.FromContext(ctx).Info("Not all of what machines need to join could be checked", "error", err.Error())
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
