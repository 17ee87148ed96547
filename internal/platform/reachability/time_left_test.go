package reachability

import (
	"testing"
	"time"
)

// Rules: join-clock-bounded-over-leaders, health-clock-bounded-over-leaders.
func TestANewLeaderFinallyReliesOnTheRecordedStart(t *testing.T) {
	const timeout = 10 * time.Minute
	minute := func(n float64) time.Time { return at(60 * n) }
	for _, tc := range []struct {
		name                string
		began, leading, now float64
		want                time.Duration
	}{
		{"a leader from before the start", 0, -60, 4, 6 * time.Minute},
		{"a leader from before the start, at the end of the timeout", 0, -60, 10, 0},
		{"a leader since the middle of the timeout", 0, 5, 8, 7 * time.Minute},
		{"a leader that just began, before three timeouts", 0, 28, 28, 2 * time.Minute},
		{"a leader that just began, after three timeouts", 0, 60, 60, time.Minute},
		{"a leader for less than a tenth of the timeout", 0, 60, 60.5, 30 * time.Second},
		{"a leader for a tenth of the timeout", 0, 60, 61, 0},
		{"a timeout that starts with the leader", 60, 60, 61, 9 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			counted := max(tc.began, tc.leading)
			if got := TimeLeft(timeout, minute(tc.began), minute(counted), minute(tc.leading), minute(tc.now)); got != tc.want {
				t.Errorf("%s left, want %s", got, tc.want)
			}
		})
	}
}
