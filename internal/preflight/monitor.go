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
	// every is how often the checks are made while they find nothing, everyWrong while they find something.
	every, everyWrong = 10 * time.Minute, 30 * time.Second
)

// Monitor makes checks again and again while a process leads, and keeps what they found, warnings excepted. A nil Monitor
// finds nothing.
type Monitor struct {
	// Check makes the checks. An error is logged; what was found counts.
	Check func(context.Context) ([]Finding, error)
	// Proven reports whether machines wait for their Nodes in vain, so that a guess counts.
	Proven func(context.Context) bool
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
		next := every
		if m.look(ctx) {
			next = everyWrong
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.Clock.After(next):
		}
	}
}

// look makes the checks once, and reports whether anything was found, guesses included.
func (m *Monitor) look(ctx context.Context) bool {
	all, err := m.Check(ctx)
	if err != nil && ctx.Err() == nil {
		logf.FromContext(ctx).Info("Not all of what machines need to join could be checked", "error", err.Error())
	}
	found := slices.DeleteFunc(slices.Clone(all), func(f Finding) bool {
		return f.Warning && !f.Guess || f.Guess && !m.Proven(ctx)
	})
	m.mu.Lock()
	changed := !slices.Equal(found, m.findings)
	if changed {
		m.findings = found
	}
	m.mu.Unlock()
	if changed {
		m.Changed(ctx)
	}
	return len(all) > 0
}
