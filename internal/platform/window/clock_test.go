package window

import (
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
)

// wallClock computes the openings of a window by checking the local time of every minute against the cron fields.
// wallClock is slow and simple, unlike the tested code.
type wallClock struct {
	fields   [5]string
	zone     *time.Location
	duration time.Duration
}

// ranges contains the values that a star stands for, for each field.
var ranges = [5][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}

func valuesOf(t testing.TB, text string, bounds [2]int) map[int]bool {
	values := map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		span, step := part, 1
		if before, after, found := strings.Cut(part, "/"); found {
			span, step = before, number(t, after)
		}
		first, last := bounds[0], bounds[1]
		if low, high, found := strings.Cut(span, "-"); found {
			first, last = number(t, low), number(t, high)
		} else if span != "*" {
			if first = number(t, span); step == 1 && !strings.Contains(part, "/") {
				last = first
			}
		}
		for v := first; v <= last; v += step {
			values[v] = true
		}
	}
	return values
}

func number(t testing.TB, text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (w wallClock) openings(t testing.TB, from, to time.Time) []time.Time {
	var values [5]map[int]bool
	for i := range values {
		values[i] = valuesOf(t, w.fields[i], ranges[i])
	}
	restricted := func(i int) bool {
		for part := range strings.SplitSeq(w.fields[i], ",") {
			if part == "*" || part == "*/1" {
				return false
			}
		}
		return true
	}
	matches := func(c time.Time) bool {
		day, weekday := values[2][c.Day()], values[4][int(c.Weekday())]
		dayMatches := day && weekday
		if restricted(2) && restricted(4) {
			dayMatches = day || weekday
		}
		return values[0][c.Minute()] && values[1][c.Hour()] && values[3][int(c.Month())] && dayMatches
	}
	// localTime returns the local date and clock time as if the zone were UTC.
	localTime := func(at time.Time) time.Time {
		l := at.In(w.zone)
		return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)
	}
	var found []time.Time
	before := localTime(from.Add(-time.Minute))
	for at := from; !at.After(to); at = at.Add(time.Minute) {
		now := localTime(at)
		open := matches(now)
		for skipped := before.Add(time.Minute); skipped.Before(now); skipped = skipped.Add(time.Minute) {
			open = open || matches(skipped)
		}
		if open {
			found = append(found, at)
		}
		before = now
	}
	return found
}

// openMinutes returns for each minute of an interval whether one of the windows is open.
func openMinutes(t testing.TB, clocks []wallClock, from, to time.Time) []bool {
	minutes := make([]bool, int(to.Sub(from)/time.Minute)+1)
	for _, c := range clocks {
		for _, opened := range c.openings(t, from.Add(-c.duration), to) {
			for at := opened; at.Before(opened.Add(c.duration)); at = at.Add(time.Minute) {
				if i := int(at.Sub(from) / time.Minute); !at.Before(from) && i < len(minutes) {
					minutes[i] = true
				}
			}
		}
	}
	return minutes
}

func of(schedule, zone, duration string) v1beta1.DisruptionWindow {
	d, err := time.ParseDuration(duration)
	if err != nil {
		panic(err)
	}
	return v1beta1.DisruptionWindow{Schedule: schedule, TimeZone: zone, Duration: metav1.Duration{Duration: d}}
}

func mustParse(t testing.TB, windows ...v1beta1.DisruptionWindow) Set {
	t.Helper()
	set, errs := Parse(field.NewPath("spec", "windows"), windows)
	if len(errs) > 0 || len(set) != len(windows) {
		t.Fatal(errs)
	}
	return set
}
