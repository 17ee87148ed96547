package permitted

import (
	"strings"
	"testing"
	"time"
)

func TestBeginsIn(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"2026-01-01T13:00:00Z": 0,
		"2026-01-02T12:00:00Z": 0,
		"2026-01-02T12:00:01Z": time.Second,
		"2025-12-31T12:00:00Z": 0,
		"tomorrow":             0,
	} {
		if got := BeginsIn(value, now, 24*time.Hour); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}

func TestUntil(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for value, problem := range map[string]string{
		"2026-01-01T13:00:00Z": "",
		"2026-01-02T12:00:00Z": "",
		"2026-01-02T12:00:01Z": "more than 24h0m0s in the future",
		"2026-01-01T12:00:00Z": "is in the past",
		"2025-12-31T12:00:00Z": "is in the past",
		"tomorrow":             `"tomorrow" is not a time such as`,
		"":                     `"" is not a time such as`,
	} {
		if got := Check(value, now, 24*time.Hour); (got == "") != (problem == "") || !strings.Contains(got, problem) {
			t.Errorf("%q: %q, want %q", value, got, problem)
		}
	}
}
