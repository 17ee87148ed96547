package invariants

import "time"

// Outage is a period in which a cluster was unreachable.
type Outage struct{ From, To time.Time }

// WithoutOutages returns how much time has passed between two times, except the time of the outages. The outages must
// not overlap.
func WithoutOutages(outages []Outage, from, to time.Time) time.Duration {
	passed := to.Sub(from)
	for _, o := range outages {
		begin, end := o.From, o.To
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		passed -= max(0, end.Sub(begin))
	}
	return passed
}
