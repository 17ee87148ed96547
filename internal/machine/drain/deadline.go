package drain

import "time"

// deadline is the end of a drain and what follows from it for one pod. Without an end, pods are never deleted against
// the will of a PodDisruptionBudget.
type deadline struct {
	start, end time.Time
}

// moment returns when eviction ends and deletion begins for a pod of the given grace: early enough that it can be used
// in full before the end, but never in the first half of the drain.
func (d deadline) moment(grace time.Duration) (time.Time, bool) {
	if d.end.IsZero() {
		return time.Time{}, false
	}
	length := max(d.end.Sub(d.start), 0)
	return d.end.Add(-min(grace, length/2)), true
}

// passed shows whether the moment for a pod of the given grace has come.
func (d deadline) passed(grace time.Duration, now time.Time) bool {
	moment, ok := d.moment(grace)
	return ok && !now.Before(moment)
}

// over shows whether the end has come.
func (d deadline) over(now time.Time) bool {
	return !d.end.IsZero() && !now.Before(d.end)
}

// remaining returns how many seconds of its grace a pod that is deleted now can use, at least 1.
func (d deadline) remaining(grace time.Duration, now time.Time) int64 {
	left := max(min(grace, d.end.Sub(now)), minGrace)
	return int64(left / time.Second)
}

// lingering returns when a pod that ought to have ended at the given time counts as gone although it is still there.
func (d deadline) lingering(ends time.Time) (time.Time, bool) {
	if d.end.IsZero() {
		return time.Time{}, false
	}
	if ends.Before(d.end) {
		ends = d.end
	}
	return ends.Add(linger), true
}
