package drain

import (
	"testing"
	"time"
)

// TestReportChangesRarely checks that a drain causes at most two writes per minute, even if its blockers change often.
//
// Rule: drain-names-blockers.
func TestReportChangesRarely(t *testing.T) {
	var r report
	steps := []struct {
		name           string
		at             time.Duration
		message, about string
		want           string
		wait           time.Duration
	}{
		{"the first report", 0, "draining", "", "draining", 0},
		{"the next report appears at once", time.Second, "blocked by a", "a", "blocked by a", 0},
		{"another text about the same blocker is dropped", 2 * time.Second, "blocked by a, still", "a", "blocked by a", 0},
		{"another blocker has to wait", 3 * time.Second, "blocked by b", "b", "blocked by a", 28 * time.Second},
		{"the first blocker again", 4 * time.Second, "blocked by a", "a", "blocked by a", 0},
		{"just before half a minute", 31*time.Second - 1, "blocked by b", "b", "blocked by a", 1},
		{"half a minute later", 31 * time.Second, "blocked by b", "b", "blocked by b", 0},
		{"no blocker is left", time.Hour, "draining", "", "draining", 0},
		{"the clock goes back", 0, "blocked by a", "a", "draining", 30 * time.Second},
	}
	for _, step := range steps {
		wait := r.update("Reason", step.message, step.about, at(step.at))
		if r.message != step.want || wait != step.wait {
			t.Errorf("%s: got %q, wait %s, want %q, wait %s", step.name, r.message, wait, step.want, step.wait)
		}
	}
}

// Rule: drain-names-blockers.
func TestNewReasonIsReportedAtOnce(t *testing.T) {
	var r report
	steps := []struct {
		name                   string
		at                     time.Duration
		reason, message, about string
		want                   string
		wait                   time.Duration
	}{
		{"the first report", 0, "Draining", "draining", "", "Draining: draining", 0},
		{"another reason", time.Second, "Blocked", "blocked by a", "a", "Blocked: blocked by a", 0},
		{"a third reason", 2 * time.Second, "Forced", "deleting a", "a", "Forced: deleting a", 0},
		{"another subject has to wait", 3 * time.Second, "Forced", "deleting b", "b", "Forced: deleting a", 29 * time.Second},
		{"an earlier reason", 4 * time.Second, "Blocked", "blocked by b", "b", "Blocked: blocked by b", 0},
		{"another subject has to wait since then", 5 * time.Second, "Blocked", "blocked by c", "c", "Blocked: blocked by b",
			29 * time.Second},
		{"another subject after half a minute", 34 * time.Second, "Blocked", "blocked by c", "c", "Blocked: blocked by c", 0},
	}
	for _, step := range steps {
		wait := r.update(step.reason, step.message, step.about, at(step.at))
		if got := r.reason + ": " + r.message; got != step.want || wait != step.wait {
			t.Errorf("%s: got %q, wait %s, want %q, wait %s", step.name, got, wait, step.want, step.wait)
		}
	}
}
