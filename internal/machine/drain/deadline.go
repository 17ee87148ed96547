package drain

import "time"

// deadline contains the start and the end of a drain. If end is zero, the drain waits without a time limit while a
// PodDisruptionBudget refuses the eviction of a pod.
type deadline struct {
	start, end time.Time
}

// deletionTime returns the time from which a pod is deleted instead of evicted. The result is false if the drain has no
// deadline. The pod can use its full grace period before the deadline. However, no pod is deleted in the first half of
// the drain.
func (d deadline) deletionTime(grace time.Duration) (time.Time, bool) {
	if d.end.IsZero() {
		return time.Time{}, false
	}
	length := max(d.end.Sub(d.start), 0)
	return d.end.Add(-min(grace, length/2)), true
}

func (d deadline) isDeletionTime(grace time.Duration, now time.Time) bool {
	moment, ok := d.deletionTime(grace)
	return ok && !now.Before(moment)
}

func (d deadline) isOver(now time.Time) bool {
	return !d.end.IsZero() && !now.Before(d.end)
}

// remainingGrace returns the grace period for the deletion of a pod now, in seconds. The result is the pod's own
// grace period or the time until the deadline, whichever is shorter, but at least 1.
func (d deadline) remainingGrace(grace time.Duration, now time.Time) int64 {
	left := max(min(grace, d.end.Sub(now)), minGrace)
	return int64(left / time.Second)
}

// countsAsGoneAt returns the time from which the drain no longer waits for a terminating pod. The argument is the time
// at which the pod should have ended.
func (d deadline) countsAsGoneAt(ends time.Time) (time.Time, bool) {
	if d.end.IsZero() {
		return time.Time{}, false
	}
	if ends.Before(d.end) {
		ends = d.end
	}
	return ends.Add(terminationLeeway), true
}
