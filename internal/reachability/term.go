package reachability

import "time"

const (
	// durableFactor is how many times a timeout must have passed, by what is written down, until it does not matter any
	// more that the leader has not seen all of that time.
	durableFactor = 3
	// termShare is the part of a timeout for which a process must have led before it goes by what is written down: after
	// an outage that it does not know of, what was cut off needs a moment to be seen again.
	termShare = 10
)

// TimeLeft returns how much of a timeout is left, less than nothing when it is over. A clock that judges machines
// runs from counted: not from before the process began to lead, since it does not know of the outages before that. A
// leader that never lasts for a whole timeout would so judge nothing, ever. So the time since began counts as well,
// which every leader finds written down, and from which the outages are left out that this process has seen: after
// three timeouts by it the time is over, once the process has led for a tenth of one.
func TimeLeft(timeout time.Duration, began, counted, leading, now time.Time) time.Duration {
	left := timeout - now.Sub(counted)
	durable := durableFactor*timeout - now.Sub(began)
	settling := timeout/termShare - now.Sub(leading)
	return min(left, max(durable, settling))
}
