package drain

import "time"

// rewriteInterval is the shortest time between two changes of a message while a machine waits.
const rewriteInterval = 30 * time.Second

// report is what a machine's condition says while it waits. A new reason is reported at once: it decides what people
// and other controllers do. The words for the same reason are rewritten only when what is in the way changes, and no
// more often than every rewriteInterval, since each change costs a write.
type report struct {
	reason, message string

	about     string // what the message is about
	rewritten time.Time
}

// offer replaces the report if it may. Otherwise it returns how long it has to wait, 0 if there is nothing to replace.
// The first report is not a change: the one that follows it may come at once.
func (r *report) offer(reason, message, about string, now time.Time) time.Duration {
	switch {
	case r.reason == "":
	case r.reason != reason:
		r.rewritten = now
	case r.about == about:
		return 0
	default:
		if wait := r.rewritten.Add(rewriteInterval).Sub(now); wait > 0 && !r.rewritten.IsZero() {
			return min(wait, rewriteInterval)
		}
		r.rewritten = now
	}
	r.reason, r.message, r.about = reason, message, about
	return 0
}
