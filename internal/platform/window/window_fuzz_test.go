package window

import (
	"fmt"
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// zones contains time zones with all kinds of clock changes: by an hour in both hemispheres, by half an hour, by a
// whole day, and around midnight. Some of the zones have no clock changes.
var zones = []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Sydney", "Australia/Lord_Howe",
	"America/Nuuk", "America/Sao_Paulo", "Asia/Kathmandu", "Pacific/Apia", "Africa/Casablanca"}

// FuzzWindowsAgainstAClock compares sets of windows with a wallClock (rule windows-by-the-wall-clock).
func FuzzWindowsAgainstAClock(f *testing.F) {
	for i, at := range []string{
		"2026-03-28T20:00:00Z", "2026-10-24T20:00:00Z", // Berlin and Nuuk
		"2026-03-08T03:00:00Z", "2026-11-01T02:00:00Z", // New York
		"2026-04-04T10:00:00Z", "2026-10-03T10:00:00Z", // Sydney and Lord Howe
		"2018-11-04T00:00:00Z", "2018-02-17T20:00:00Z", // Sao Paulo, at midnight
		"2011-12-30T02:00:00Z", // Apia skips a day
		"2028-02-28T12:00:00Z", "2026-12-31T12:00:00Z", "2044-12-30T00:00:00Z", "2045-03-25T20:00:00Z",
	} {
		from, err := time.Parse(time.RFC3339, at)
		if err != nil {
			f.Fatal(err)
		}
		for zone := range zones {
			f.Add(from.Unix(), uint8(zone), uint16(i*37+zone), uint16(i), uint8(zone+i), uint16(29+i*61))
		}
	}
	f.Fuzz(func(t *testing.T, unix int64, zone uint8, one, two uint16, days uint8, minutes uint16) {
		// Before 1980, some offsets are not whole minutes.
		from := time.Unix(320_000_000+abs(unix)%3_000_000_000, 0).UTC().Truncate(time.Minute)
		windows := []v1beta1.DisruptionWindow{
			window(one, days, zones[int(zone)%len(zones)], minutes),
			window(two, days/3, zones[int(zone/16)%len(zones)], minutes/7),
		}
		var clocks []wallClock
		for i := range windows {
			clocks = append(clocks, clockOf(t, &windows[i]))
		}
		const span = 2 * 24 * 60
		set, expected := mustParse(t, windows...), openMinutes(t, clocks, from, from.Add(span*time.Minute))
		change := len(expected)
		for i, isOpen := range expected {
			at := from.Add(time.Duration(i) * time.Minute)
			if set.Open(at) != isOpen || set.Open(at.Add(59*time.Second+999)) != isOpen {
				t.Fatalf("%+v at %v: Open() = %t", windows, at, set.Open(at))
			}
			if isOpen != expected[0] && change == len(expected) {
				change = i
			}
		}
		next, found := set.NextChange(from)
		if change < len(expected) && (!found || !next.Equal(from.Add(time.Duration(change)*time.Minute))) {
			t.Errorf("%+v from %v: NextChange() = %v (%t), want minute %d", windows, from, next, found, change)
		}
		if change == len(expected) && found && !next.After(from.Add(span*time.Minute)) {
			t.Errorf("%+v from %v: NextChange() = %v, want no change until then", windows, from, next)
		}
	})
}

// window converts numbers from the fuzzer to a DisruptionWindow. Many of these windows open in hours in which clocks
// change.
func window(a uint16, b uint8, zone string, minutes uint16) v1beta1.DisruptionWindow {
	minute := []string{"0", "30", "*", "*/7", "1-59/2", "15,45", "59", "0,1,2", "10-20"}[a%9]
	hour := []string{"2", "*", "0", "23", "1-3", "*/5", "2,14", "22"}[a/9%8]
	day := []string{"*", "*", "*", "1", "28-31", "*/2", "29"}[a/72%7]
	month := []string{"*", "*", "*", "3,10,11", "2"}[b%5]
	weekday := []string{"*", "*", "0", "1-5", "6,0", "*/1"}[b/5%6]
	return of(fmt.Sprintf("%s %s %s %s %s", minute, hour, day, month, weekday), zone,
		fmt.Sprintf("%dm", 1+int(minutes)%(7*24*60)))
}

func clockOf(t testing.TB, w *v1beta1.DisruptionWindow) wallClock {
	zone, err := time.LoadLocation(w.TimeZone)
	if err != nil {
		t.Fatal(err)
	}
	c := wallClock{zone: zone, duration: w.Duration.Duration}
	if n, err := fmt.Sscan(w.Schedule, &c.fields[0], &c.fields[1], &c.fields[2], &c.fields[3], &c.fields[4]); n != 5 {
		t.Fatal(err)
	}
	return c
}

func abs(n int64) int64 { return max(n, -(n + 1)) }
