package reachability

import (
	"testing"
	"time"
)

// Rules: join-clock-bounded-over-leaders, health-clock-bounded-over-leaders.
func TestALeaderThatIsYoungGoesByWhatIsWrittenDownInTheEnd(t *testing.T) {
	const timeout = 10 * time.Minute
	minute := func(n float64) time.Time { return at(60 * n) }
	for _, tc := range []struct {
		name                string
		began, leading, now float64
		want                time.Duration
	}{
		{"an old leader", 0, -60, 4, 6 * time.Minute},
		{"an old leader at the end", 0, -60, 10, 0},
		{"a leader that began meanwhile", 0, 5, 8, 7 * time.Minute},
		{"one that began just now", 0, 28, 28, 2 * time.Minute},
		{"one that began after all of the time", 0, 60, 60, time.Minute},
		{"one that has led for a moment", 0, 60, 60.5, 30 * time.Second},
		{"one that has led for long enough", 0, 60, 61, 0},
		{"what begins with the leader", 60, 60, 61, 9 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			counted := max(tc.began, tc.leading)
			if got := TimeLeft(timeout, minute(tc.began), minute(counted), minute(tc.leading), minute(tc.now)); got != tc.want {
				t.Errorf("%s left, want %s", got, tc.want)
			}
		})
	}
}
