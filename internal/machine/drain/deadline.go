package drain

import "time"

// deadline is the end of a drain, and what it means for one pod. Without an end, pods are never deleted if a
// PodDisruptionBudget refuses their eviction.
type deadline struct {
	start, end time.Time
}

// moment returns when eviction ends and deletion begins for a pod with the given grace period. The pod can use its full
// grace period before the end of the drain, but is never deleted in the first half of the drain.
func (d deadline) moment(grace time.Duration) (time.Time, bool) {
	if d.end.IsZero() {
		return time.Time{}, false
	}
	length := max(d.end.Sub(d.start), 0)
	return d.end.Add(-min(grace, length/2)), true
}

// passed reports whether a pod with the given grace period is deleted instead of evicted by now.
func (d deadline) passed(grace time.Duration, now time.Time) bool {
	moment, ok := d.moment(grace)
	return ok && !now.Before(moment)
}

// over reports whether the end has passed.
func (d deadline) over(now time.Time) bool {
	return !d.end.IsZero() && !now.Before(d.end)
}

// remaining returns how many seconds of its grace period a pod that is deleted now can use, at least 1.
func (d deadline) remaining(grace time.Duration, now time.Time) int64 {
	left := max(min(grace, d.end.Sub(now)), minGrace)
	return int64(left / time.Second)
}

// countsAsGoneAt returns when a pod that should have ended at the given time counts as gone although it still exists.
func (d deadline) countsAsGoneAt(ends time.Time) (time.Time, bool) {
	if d.end.IsZero() {
		return time.Time{}, false
	}
	if ends.Before(d.end) {
		ends = d.end
	}
	return ends.Add(terminationLeeway), true
}
