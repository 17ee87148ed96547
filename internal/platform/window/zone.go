package window

import (
	"math"
	"time"
)

// period is an interval in which the offset of a zone from UTC does not change. The adjacent periods may have the same
// offset.
type period struct {
	zone               *time.Location
	begin, end, offset int64
}

// move sets p to a period of the zone that contains the given time. If p already contains the time, move does nothing.
// After the last entry of the zone's table, each call is slow, because the time library parses the rule of the zone
// each time.
func (p *period) move(zone *time.Location, at int64) {
	if p.zone == zone && p.begin <= at && at < p.end {
		return
	}
	*p = period{zone: zone, begin: math.MinInt64 / 2, end: math.MaxInt64 / 2}
	if zone == time.UTC {
		return
	}
	t := time.Unix(at, 0).In(zone)
	_, offset := t.Zone()
	p.offset = int64(offset)
	begin, end := t.ZoneBounds()
	if !begin.IsZero() {
		p.begin = begin.Unix()
	}
	if !end.IsZero() {
		p.end = end.Unix()
	}
	// After the last entry of the zone's table, the time library computes periods from the rule of the zone. It then
	// ends a period with the 365th day of the year, which is too early in a leap year. The period can be extended by a
	// day, because no rule changes the offset around New Year.
	if p.end <= at {
		p.end = at + secondsOfDay
	}
}

func (w *Window) next(from int64, p *period) (int64, bool) {
	for at := from; at <= from+maxScheduleGap; {
		p.move(w.zone, at)
		end, offset := min(p.end, from+maxScheduleGap+1), p.offset
		if local, ok := w.schedule.next(at+offset, end+offset); ok {
			return local - offset, true
		}
		if end < p.end {
			break
		}
		// The local time jumps ahead. If the jump skips a time of the schedule, the window opens immediately after the
		// jump.
		p.move(w.zone, end)
		if p.offset > offset {
			if _, ok := w.schedule.next(end+offset, end+p.offset); ok {
				return end, true
			}
		}
		at = end
	}
	return 0, false
}

func (w *Window) previous(until, begin int64, p *period) (int64, bool) {
	for at := until; at >= begin; {
		p.move(w.zone, at)
		start, offset := max(p.begin, begin), p.offset
		if local, ok := w.schedule.previous(at+offset, start+offset); ok {
			return local - offset, true
		}
		if start > p.begin {
			break
		}
		p.move(w.zone, start-1)
		if p.offset < offset {
			if _, ok := w.schedule.next(start+p.offset, start+offset); ok {
				return start, true
			}
		}
		at = start - 1
	}
	return 0, false
}
