package window

import (
	"math"
	"time"
)

// period is a time in which a zone has one offset. Its end and its beginning may lie within the time that has that
// offset.
type period struct {
	begin, end, offset int64
}

// periodOf returns the period of a zone that has a time.
func periodOf(zone *time.Location, at int64) period {
	if zone == time.UTC {
		return period{begin: math.MinInt64 / 2, end: math.MaxInt64 / 2}
	}
	t := time.Unix(at, 0).In(zone)
	_, offset := t.Zone()
	begin, end := t.ZoneBounds()
	p := period{begin: math.MinInt64 / 2, end: math.MaxInt64 / 2, offset: int64(offset)}
	if !begin.IsZero() {
		p.begin = begin.Unix()
	}
	if !end.IsZero() {
		p.end = end.Unix()
	}
	// Where a zone goes by a rule, the library ends a period with the 365th day of the year: too early in a leap year.
	// No rule changes an offset around New Year.
	if p.end <= at {
		p.end = at + secondsOfDay
	}
	return p
}

// next returns the first time at which the window opens, not before the one given.
func (w *Window) next(from int64) (int64, bool) {
	for at := from; at <= from+farthest; {
		p := periodOf(w.zone, at)
		end := min(p.end, from+farthest+1)
		if wall, ok := w.schedule.next(at+p.offset, end+p.offset); ok {
			return wall - p.offset, true
		}
		if end < p.end {
			break
		}
		// The clock jumps ahead: what it skips counts as the moment after.
		if after := periodOf(w.zone, end).offset; after > p.offset {
			if _, ok := w.schedule.next(end+p.offset, end+after); ok {
				return end, true
			}
		}
		at = end
	}
	return 0, false
}

// previous returns the last time at which the window opened, from a beginning on and until a time.
func (w *Window) previous(until, begin int64) (int64, bool) {
	for at := until; at >= begin; {
		p := periodOf(w.zone, at)
		start := max(p.begin, begin)
		if wall, ok := w.schedule.previous(at+p.offset, start+p.offset); ok {
			return wall - p.offset, true
		}
		if start > p.begin {
			break
		}
		if before := periodOf(w.zone, start-1).offset; before < p.offset {
			if _, ok := w.schedule.next(start+before, start+p.offset); ok {
				return start, true
			}
		}
		at = start - 1
	}
	return 0, false
}
