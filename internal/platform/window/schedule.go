package window

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

const (
	minutesOfDay  = 24 * 60
	secondsOfDay  = 24 * 60 * 60
	secondsOfYear = 366 * secondsOfDay
)

// schedule contains a bit for each allowed value of each cron field.
type schedule struct {
	minute, hour, day, month, weekday uint64
	// If matchesEitherDay is true, a date matches if its day of the month or its day of the week matches. Otherwise
	// both must match.
	matchesEitherDay bool
}

// starBit is the bit that the parser sets in a field that allows every value.
const starBit = 1 << 63

// parser parses the five fields without seconds, and the descriptors of cron, such as @daily.
var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// parseSchedule parses a schedule. parseSchedule rejects a time zone, a schedule without fixed times, and a schedule
// that never matches.
func parseSchedule(text string) (schedule, error) {
	switch {
	case strings.Contains(text, "TZ="):
		return schedule{}, errors.New("must not contain a time zone: set timeZone instead")
	case strings.HasPrefix(text, "@every"):
		return schedule{}, errors.New("@every has no start time: use the five fields of cron, such as 0 22 * * 1-5")
	}
	parsed, err := parser.Parse(text)
	if err != nil {
		return schedule{}, fmt.Errorf("must consist of the five fields of cron, such as 0 22 * * 1-5: %w", err)
	}
	fields, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return schedule{}, errors.New("must consist of the five fields of cron, such as 0 22 * * 1-5")
	}
	s := schedule{
		minute: fields.Minute &^ starBit, hour: fields.Hour &^ starBit, day: fields.Dom &^ starBit,
		month: fields.Month &^ starBit, weekday: fields.Dow &^ starBit,
		matchesEitherDay: fields.Dom&starBit == 0 && fields.Dow&starBit == 0,
	}
	// A schedule that ever matches also matches in 2000. This leap year contains every possible date, and each of its
	// months contains every day of the week.
	year := time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
	if _, ok := s.next(year, year+secondsOfYear); !ok {
		return schedule{}, errors.New("never matches: none of its months has such a day, or a field is empty")
	}
	return s, nil
}

// next returns the first local time of the schedule in the interval [from, end). Local times are in seconds, computed
// as if the zone were UTC.
func (s *schedule) next(from, end int64) (int64, bool) {
	minute := -quotient(-from, 60)
	day, ofDay := quotient(minute, minutesOfDay), int(minute-quotient(minute, minutesOfDay)*minutesOfDay)
	for day*secondsOfDay < end {
		date := time.Unix(day*secondsOfDay, 0).UTC()
		if s.month&(1<<uint(date.Month())) == 0 {
			day, ofDay = time.Date(date.Year(), date.Month()+1, 1, 0, 0, 0, 0, time.UTC).Unix()/secondsOfDay, 0
			continue
		}
		if s.matches(date) {
			if m, ok := s.nextOfDay(ofDay); ok {
				found := day*secondsOfDay + int64(m)*60
				return found, found < end
			}
		}
		day, ofDay = day+1, 0
	}
	return 0, false
}

func (s *schedule) previous(until, begin int64) (int64, bool) {
	minute := quotient(until, 60)
	day := quotient(minute, minutesOfDay)
	ofDay := int(minute - day*minutesOfDay)
	for (day+1)*secondsOfDay > begin {
		if s.matches(time.Unix(day*secondsOfDay, 0).UTC()) {
			if m, ok := s.previousOfDay(ofDay); ok {
				found := day*secondsOfDay + int64(m)*60
				return found, found >= begin
			}
		}
		day, ofDay = day-1, minutesOfDay-1
	}
	return 0, false
}

func (s *schedule) matches(date time.Time) bool {
	month, day := s.month&(1<<uint(date.Month())) != 0, s.day&(1<<uint(date.Day())) != 0
	weekday := s.weekday&(1<<uint(date.Weekday())) != 0
	if s.matchesEitherDay {
		return month && (day || weekday)
	}
	return month && day && weekday
}

// nextOfDay returns the first time of the schedule on a matching day that is not before the given minute. Minutes are
// counted from midnight.
func (s *schedule) nextOfDay(from int) (int, bool) {
	hour := from / 60
	if s.hour&(1<<uint(hour)) != 0 {
		if later := s.minute >> uint(from%60); later != 0 {
			return from + bits.TrailingZeros64(later), true
		}
	}
	later := s.hour >> uint(hour+1)
	if later == 0 || s.minute == 0 {
		return 0, false
	}
	return (hour+1+bits.TrailingZeros64(later))*60 + bits.TrailingZeros64(s.minute), true
}

// previousOfDay finds the last time of the schedule on a matching day, up to and including the minute until. Minutes
// are counted from midnight.
func (s *schedule) previousOfDay(until int) (int, bool) {
	hour := until / 60
	if s.hour&(1<<uint(hour)) != 0 {
		if earlier := s.minute & (1<<uint(until%60+1) - 1); earlier != 0 {
			return hour*60 + bits.Len64(earlier) - 1, true
		}
	}
	earlier := s.hour & (1<<uint(hour) - 1)
	if earlier == 0 || s.minute == 0 {
		return 0, false
	}
	return (bits.Len64(earlier)-1)*60 + bits.Len64(s.minute) - 1, true
}

// longestPause returns the greatest number of minutes between two consecutive times of the schedule on one day.
func (s *schedule) longestPause() int {
	longest, last := 0, -1
	for m, ok := s.nextOfDay(0); ok; {
		if last >= 0 {
			longest = max(longest, m-last)
		}
		if last = m; last == minutesOfDay-1 {
			break
		}
		m, ok = s.nextOfDay(last + 1)
	}
	return longest
}

// quotient returns a/b rounded down, also for negative numbers.
func quotient(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}
