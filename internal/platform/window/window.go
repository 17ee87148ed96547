package window

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
)

// Bounds of the duration of a window.
const (
	MinDuration = time.Minute
	MaxDuration = 7 * 24 * time.Hour
)

const (
	// maxScheduleGap is the maximum time until the next time of a schedule, in seconds. For 29 February, this can be
	// eight years.
	maxScheduleGap = 9 * secondsOfYear
	// searchHorizon limits how far into the future NextChange searches for the time at which an open set closes, in
	// seconds.
	searchHorizon = 400 * secondsOfDay
	maxSteps      = 5_000
)

// Window is a recurring period: it opens at each time of a cron schedule, and closes after a fixed duration.
type Window struct {
	schedule schedule
	zone     *time.Location
	// duration is in seconds.
	duration int64
	// coversDay is true if the duration is at least as long as each pause between two times of the schedule on one day.
	// On each matching day, the window then stays open from the first time of the schedule to the last one.
	coversDay bool
}

// Set combines windows. A Set is open while at least one of its windows is open.
type Set []Window

// Parse returns the valid windows, and an error for each invalid field of the other windows. The errors name the field
// at path.
func Parse(path *field.Path, windows []v1beta1.DisruptionWindow) (Set, field.ErrorList) {
	var errs field.ErrorList
	var set Set
	for i := range windows {
		w, invalid := parse(path.Index(i), &windows[i])
		if errs = append(errs, invalid...); len(invalid) == 0 {
			set = append(set, w)
		}
	}
	return set, errs
}

func parse(path *field.Path, in *v1beta1.DisruptionWindow) (Window, field.ErrorList) {
	var errs field.ErrorList
	s, err := parseSchedule(in.Schedule)
	if err != nil {
		errs = append(errs, field.Invalid(path.Child("schedule"), in.Schedule, err.Error()))
	}
	zone, err := loadZone(in.TimeZone)
	if err != nil {
		errs = append(errs, field.Invalid(path.Child("timeZone"), in.TimeZone,
			"must be a name of the IANA time zone database, such as Europe/Berlin: "+err.Error()))
	}
	switch d := in.Duration.Duration; {
	case d < MinDuration || d > MaxDuration:
		errs = append(errs, field.Invalid(path.Child("duration"), d.String(), "must be from 1m to 168h"))
	case d%time.Second != 0:
		errs = append(errs, field.Invalid(path.Child("duration"), d.String(), "must be a whole number of seconds"))
	}
	if len(errs) > 0 {
		return Window{}, errs
	}
	w := Window{schedule: s, zone: zone, duration: int64(in.Duration.Duration / time.Second)}
	w.coversDay = int64(s.longestPause())*60 <= w.duration
	return w, nil
}

// loadZone returns the time zone of a name. The time library also accepts the name Local, but it means a different zone
// on each computer.
func loadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New("unknown time zone Local")
	}
	return time.LoadLocation(name)
}

// Open reports whether at least one of the windows is open at the time t.
func (s Set) Open(t time.Time) bool {
	_, open := s.openUntil(t.Unix(), &period{})
	return open
}

// NextChange returns the first time after t at which the set opens or closes. It returns false if the set never
// changes, because it has no windows or is always open. The search ends after 400 days or 5,000 windows.
func (s Set) NextChange(t time.Time) (time.Time, bool) {
	if len(s) == 0 {
		return time.Time{}, false
	}
	at, p := t.Unix(), &period{}
	end, open := s.openUntil(at, p)
	if !open {
		next, found := int64(0), false
		for i := range s {
			if opens, ok := s[i].next(at+1, p); ok && (!found || opens < next) {
				next, found = opens, true
			}
		}
		return time.Unix(next, 0).UTC(), found
	}
	for range maxSteps {
		if end > at+searchHorizon {
			break
		}
		further, open := s.openUntil(end, p)
		if !open {
			return time.Unix(end, 0).UTC(), true
		}
		end = further
	}
	return time.Time{}, false
}

// openUntil reports whether a window of the set is open at the given time. If so, a window is open at least until the
// returned time.
func (s Set) openUntil(at int64, p *period) (until int64, open bool) {
	for i := range s {
		if end, ok := s[i].openUntil(at, p); ok {
			until, open = max(until, end), true
		}
	}
	return until, open
}

// openUntil reports whether the window is open at the given time. If so, the window stays open at least until the
// returned time. If coversDay is true, this time depends only on the last opening of the same day. This shortcut
// saves many steps in NextChange, because a schedule may contain every minute of a day.
func (w *Window) openUntil(at int64, p *period) (until int64, open bool) {
	opened, ok := w.previous(at, at-w.duration+1, p)
	if !ok {
		return 0, false
	}
	if w.coversDay {
		p.move(w.zone, opened)
		local := opened + p.offset
		midnight := (quotient(local, secondsOfDay) + 1) * secondsOfDay
		if last, ok := w.schedule.previous(midnight-1, local); ok && last-p.offset < p.end {
			opened = last - p.offset
		}
	}
	return opened + w.duration, true
}
