package preflight

import (
	"context"
	"errors"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

// Rule: join-is-checked-beforehand.
func TestMonitorKeepsProblemsAndProvenGuesses(t *testing.T) {
	wrong, guess, warning := Finding{Reason: "Wrong"}, Finding{Reason: "Guess", IsUncertain: true, Warning: true},
		Finding{Reason: "Warning", Warning: true}
	var found []Finding
	var failure error
	verdict, changes := VerdictOpen, 0
	m := &Monitor{Check: func(context.Context) ([]Finding, error) { return found, failure },
		Judge:    func(context.Context) Verdict { return verdict },
		OnChange: func(context.Context) { changes++ }, Clock: testclock.NewFakeClock(noon)}
	for _, step := range []struct {
		name    string
		found   []Finding
		verdict Verdict
		err     error
		kept    int
		next    time.Duration
		changes int
	}{
		{"no finding", nil, VerdictOpen, nil, 0, checkInterval, 0},
		{"a warning", []Finding{warning}, VerdictOpen, nil, 0, checkInterval, 0},
		{"an open guess", []Finding{guess}, VerdictOpen, nil, 0, guessInterval, 0},
		{"a refuted guess", []Finding{guess}, VerdictRefuted, nil, 0, checkInterval, 0},
		{"a proven guess", []Finding{guess}, VerdictProven, nil, 1, problemInterval, 1},
		{"a problem and a proven guess", []Finding{wrong, guess}, VerdictProven, nil, 2, problemInterval, 2},
		{"the same findings again", []Finding{wrong, guess}, VerdictProven, nil, 2, problemInterval, 2},
		{"a check that fails", []Finding{wrong}, VerdictRefuted, errors.New("forbidden"), 1, problemInterval, 3},
		{"everything is fixed", nil, VerdictRefuted, nil, 0, checkInterval, 4},
	} {
		found, verdict, failure = step.found, step.verdict, step.err
		if next := m.check(t.Context()); next != step.next || len(m.Findings()) != step.kept || changes != step.changes {
			t.Errorf("%s: next check after %s, kept %+v, %d changes; want %s, %d and %d", step.name, next, m.Findings(), changes,
				step.next, step.kept, step.changes)
		}
	}
	if (*Monitor)(nil).Findings() != nil {
		t.Error("a nil Monitor has findings")
	}
}
