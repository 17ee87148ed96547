package placement

import "time"

// Capacity is what is known about the capacity of a class. The zero value means that the class has capacity.
type Capacity struct {
	// Exhausted is true while the condition CapacityAvailable of the class is False.
	Exhausted bool
	// Since is the time since which the class has been exhausted.
	Since time.Time
	// RetryTime is the time after which one machine tries the class again.
	RetryTime time.Time
	// Pending is the number of the deployment's machines of the class that have no instance but may create one,
	// including a machine that Move moves.
	Pending int
	// Missing is true if the class does not exist or is being deleted, or if several machines of the class cannot be
	// launched. No machine gets such a class.
	Missing bool
	// Rejected is the reason why no instance can be created from the class, for reports. It is empty if the class is
	// valid, or if it is not known whether the class is valid.
	Rejected string
}

// available reports whether a new machine of the class may create an instance now. If the class is exhausted and its
// retry time is over, one machine at a time probes the class. This machine is the only one without an instance.
func (c *Capacity) available(now time.Time) bool {
	switch {
	case c.Missing:
		return false
	case !c.Exhausted:
		return true
	}
	return c.Pending == 0 && c.Wait(now) == 0
}

// furthestAhead is the maximum plausible time until the retry time. A clock that was set back, or another client, may
// have caused a later retry time, which is ignored. The provider ignores the same times.
const furthestAhead = 35 * time.Minute

// Wait returns the time until one machine tries the class again. It is zero if the class is not exhausted.
func (c *Capacity) Wait(now time.Time) time.Duration {
	left := c.RetryTime.Sub(now)
	if !c.Exhausted || left > furthestAhead {
		return 0
	}
	return max(left, 0)
}

// option is a class of a domain.
type option struct {
	className string
	capacity  *Capacity
}

// withCapacity returns the index of the domain's first option with capacity, or false if there is none.
func (d *domain) withCapacity(now time.Time) (int, bool) {
	for i := range d.options {
		if d.options[i].capacity.available(now) {
			return i, true
		}
	}
	return 0, false
}

// isUnusable reports whether no option of the domain had capacity at the last try. Other than withCapacity, it does not
// change when a retry time is over. isMissing is true if the reason is only that the classes are missing.
func (d *domain) isUnusable() (unusable, isMissing bool) {
	isMissing = true
	for i := range d.options {
		c := d.options[i].capacity
		if !c.Exhausted && !c.Missing {
			return false, false
		}
		isMissing = isMissing && c.Missing
	}
	return true, isMissing
}

// nextRetry returns the existing class of the domain that is tried again first. If the times are equal, it is the
// preferred class.
func (d *domain) nextRetry() (className string) {
	var first time.Time
	for _, o := range d.options {
		if !o.capacity.Missing && (className == "" || o.capacity.RetryTime.Before(first)) {
			className, first = o.className, o.capacity.RetryTime
		}
	}
	return className
}
