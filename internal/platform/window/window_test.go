package window

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: windows-by-the-wall-clock.
func TestWindowsOpenAndClose(t *testing.T) {
	type windows = []v1beta1.DisruptionWindow
	for name, test := range map[string]struct {
		windows windows
		from    string
		// changes contains the times at which the windows open and close, in order. The last element is "-" if there is
		// no further change.
		open    bool
		changes []string
	}{
		"over midnight": {windows{of("0 22 * * *", "", "8h")}, "2026-05-05T21:59:59Z", false,
			[]string{"2026-05-05T22:00:00Z", "2026-05-06T06:00:00Z", "2026-05-06T22:00:00Z"}},
		"includes the first second": {windows{of("0 22 * * *", "", "8h")}, "2026-05-05T22:00:00Z", true,
			[]string{"2026-05-06T06:00:00Z"}},
		"includes the last second": {windows{of("0 22 * * *", "", "8h")}, "2026-05-06T05:59:59Z", true,
			[]string{"2026-05-06T06:00:00Z"}},
		"excludes the second after the last": {windows{of("0 22 * * *", "", "8h")}, "2026-05-06T06:00:00Z", false,
			[]string{"2026-05-06T22:00:00Z"}},
		"a duration with seconds": {windows{of("0 22 * * *", "", "90s")}, "2026-05-05T22:01:29Z", true,
			[]string{"2026-05-05T22:01:30Z"}},
		"on weekdays": {windows{of("0 22 * * 1-5", "", "8h")}, "2026-05-08T23:00:00Z", true, // a Friday
			[]string{"2026-05-09T06:00:00Z", "2026-05-11T22:00:00Z"}},
		"for a whole weekend": {windows{of("0 0 * * sat", "", "48h")}, "2026-05-08T23:00:00Z", false,
			[]string{"2026-05-09T00:00:00Z", "2026-05-11T00:00:00Z", "2026-05-16T00:00:00Z"}},
		"for a whole week": {windows{of("0 0 1 * *", "", "168h")}, "2026-01-31T00:00:00Z", false,
			[]string{"2026-02-01T00:00:00Z", "2026-02-08T00:00:00Z", "2026-03-01T00:00:00Z"}},
		"on the 31st only": {windows{of("0 12 31 * *", "", "1h")}, "2026-01-31T13:00:00Z", false,
			[]string{"2026-03-31T12:00:00Z", "2026-03-31T13:00:00Z", "2026-05-31T12:00:00Z"}},
		"over the end of a year": {windows{of("0 20 31 12 *", "", "12h")}, "2026-12-31T21:00:00Z", true,
			[]string{"2027-01-01T08:00:00Z", "2027-12-31T20:00:00Z"}},
		"on leap days": {windows{of("0 0 29 2 *", "", "24h")}, "2026-01-01T00:00:00Z", false,
			[]string{"2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z", "2032-02-29T00:00:00Z"}},
		"on leap days, which 2100 does not have": {windows{of("0 0 29 2 *", "", "24h")}, "2096-03-01T00:00:00Z", false,
			[]string{"2104-02-29T00:00:00Z"}},
		// For years in the far future, the rule of the time library assumes that each year has 365 days.
		"on the last day of a leap year": {windows{of("0 22 * * 1", "Europe/Berlin", "8h")}, "2044-12-31T12:00:00Z", false,
			[]string{"2045-01-02T21:00:00Z", "2045-01-03T05:00:00Z"}},
		"on a day of the month or of the week": {windows{of("0 0 13 * 5", "", "1h")}, "2026-05-09T00:00:00Z", false,
			[]string{"2026-05-13T00:00:00Z", "2026-05-13T01:00:00Z", "2026-05-15T00:00:00Z"}},
		"by a descriptor": {windows{of("@weekly", "Europe/Berlin", "1h")}, "2026-05-05T00:00:00Z", false,
			[]string{"2026-05-09T22:00:00Z"}},

		"in two zones": {windows{of("0 9 * * *", "Asia/Tokyo", "8h"), of("0 9 * * *", "Europe/Berlin", "8h")},
			"2026-05-05T00:00:00Z", true, // from 00:00 to 08:00, and from 07:00 to 15:00
			[]string{"2026-05-05T15:00:00Z", "2026-05-06T00:00:00Z"}},
		"two that adjoin": {windows{of("0 0 * * *", "", "6h"), of("0 6 * * *", "", "6h")}, "2026-05-05T01:00:00Z", true,
			[]string{"2026-05-05T12:00:00Z", "2026-05-06T00:00:00Z"}},
		"one within the other": {windows{of("0 0 * * *", "", "12h"), of("0 3 * * *", "", "1h")},
			"2026-05-05T03:30:00Z", true, []string{"2026-05-05T12:00:00Z"}},
		"overlapping during a part of the day": {windows{of("*/10 8-9 * * *", "", "15m")}, "2026-05-05T08:00:00Z", true,
			[]string{"2026-05-05T10:05:00Z", "2026-05-06T08:00:00Z"}},
		"with gaps": {windows{of("*/10 * * * *", "", "9m")}, "2026-05-05T08:00:00Z", true,
			[]string{"2026-05-05T08:09:00Z", "2026-05-05T08:10:00Z"}},
		"always": {windows{of("* * * * *", "", "1m")}, "2026-05-05T08:00:00Z", true, []string{"-"}},
		"always, because two alternate": {windows{of("*/2 * * * *", "", "1m"), of("1-59/2 * * * *", "", "1m")},
			"2026-05-05T08:00:00Z", true, []string{"-"}},
		"always, because they overlap": {windows{of("0 12 * * 1", "", "168h")}, "2026-05-05T08:00:00Z", true, []string{"-"}},
		"no windows":                   {nil, "2026-05-05T08:00:00Z", false, []string{"-"}},
		"hourly, with a gap when half an hour is repeated": {windows{of("0 * * * *", "Australia/Lord_Howe", "1h")},
			"2026-01-05T08:00:00Z", true, []string{"2026-04-04T15:00:00Z", "2026-04-04T15:30:00Z"}},
		"daily, with a gap on a day of 25 hours": {windows{of("0 0 * * *", "Europe/Berlin", "24h")}, "2026-05-05T08:00:00Z", true,
			[]string{"2026-10-25T22:00:00Z", "2026-10-25T23:00:00Z"}},

		"skipped in spring, so it opens after the jump": {windows{of("30 2 * * *", "Europe/Berlin", "1h")},
			"2026-03-28T12:00:00Z", false,
			[]string{"2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z", "2026-03-30T00:30:00Z"}},
		"over the jump in spring, with the same duration": {windows{of("0 22 * * *", "Europe/Berlin", "8h")}, "2026-03-28T20:00:00Z", false,
			[]string{"2026-03-28T21:00:00Z", "2026-03-29T05:00:00Z", "2026-03-29T20:00:00Z"}},
		"twice in autumn": {windows{of("30 2 * * *", "Europe/Berlin", "15m")}, "2026-10-25T00:00:00Z", false,
			[]string{"2026-10-25T00:30:00Z", "2026-10-25T00:45:00Z", "2026-10-25T01:30:00Z", "2026-10-25T01:45:00Z",
				"2026-10-26T01:30:00Z"}},
		"over the repeated hour, with the same duration": {windows{of("0 22 * * *", "Europe/Berlin", "8h")}, "2026-10-24T19:00:00Z", false,
			[]string{"2026-10-24T20:00:00Z", "2026-10-25T04:00:00Z", "2026-10-25T21:00:00Z"}},
		"skipped in New York": {windows{of("0 2 * * *", "America/New_York", "2h")}, "2026-03-08T00:00:00Z", false,
			[]string{"2026-03-08T07:00:00Z", "2026-03-08T09:00:00Z", "2026-03-09T06:00:00Z"}},
		"twice in New York": {windows{of("0 1 * * *", "America/New_York", "30m")}, "2026-11-01T00:00:00Z", false,
			[]string{"2026-11-01T05:00:00Z", "2026-11-01T05:30:00Z", "2026-11-01T06:00:00Z", "2026-11-01T06:30:00Z"}},
		"skipped in Sydney, in October": {windows{of("15 2 * * *", "Australia/Sydney", "1h")}, "2026-10-03T12:00:00Z", false,
			[]string{"2026-10-03T16:00:00Z", "2026-10-03T17:00:00Z"}},
		"twice in Sydney, in April": {windows{of("15 2 * * *", "Australia/Sydney", "30m")}, "2026-04-04T12:00:00Z", false,
			[]string{"2026-04-04T15:15:00Z", "2026-04-04T15:45:00Z", "2026-04-04T16:15:00Z"}},
		"skipped by a jump of half an hour": {windows{of("15 2 * * *", "Australia/Lord_Howe", "1h")}, "2026-10-03T12:00:00Z", false,
			[]string{"2026-10-03T15:30:00Z", "2026-10-03T16:30:00Z", "2026-10-04T15:15:00Z"}},
		"twice with a repetition of half an hour": {windows{of("45 1 * * *", "Australia/Lord_Howe", "10m")}, "2026-04-04T12:00:00Z", false,
			[]string{"2026-04-04T14:45:00Z", "2026-04-04T14:55:00Z", "2026-04-04T15:15:00Z", "2026-04-04T15:25:00Z"}},
		"skipped into the next day": {windows{of("30 23 * * 6", "America/Nuuk", "1h")}, "2026-03-28T12:00:00Z", false,
			[]string{"2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"}},
		"on a date that the zone skipped": {windows{of("0 12 30 12 *", "Pacific/Apia", "1h")}, "2011-12-30T00:00:00Z", false,
			[]string{"2011-12-30T10:00:00Z", "2011-12-30T11:00:00Z", "2012-12-29T22:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			set, at := mustParse(t, test.windows...), timeOf(t, test.from)
			for _, change := range test.changes {
				if set.Open(at) != test.open {
					t.Fatalf("Open(%v) = %t", at, !test.open)
				}
				next, found := set.NextChange(at)
				if got := next.Format(time.RFC3339); found != (change != "-") || found && got != change {
					t.Fatalf("NextChange(%v) = %s (%t), want %s", at, got, found, change)
				}
				at, test.open = next, !test.open
			}
		})
	}
}

// Rule: window-errors-name-the-field.
func TestParseNamesInvalidFields(t *testing.T) {
	for name, test := range map[string]struct {
		window v1beta1.DisruptionWindow
		wanted string
	}{
		"no schedule":                  {of("", "", "1h"), `schedule: Invalid value: "": must consist of the five fields of cron`},
		"four fields":                  {of("0 22 * *", "", "1h"), `schedule: Invalid value: "0 22 * *": must consist of the five fields`},
		"seconds":                      {of("0 0 22 * * *", "", "1h"), `schedule: Invalid value: "0 0 22 * * *": must consist of the five`},
		"the hour 24":                  {of("0 24 * * *", "", "1h"), `schedule: Invalid value: "0 24 * * *": must consist of the five`},
		"the eighth day":               {of("0 0 * * 7", "", "1h"), `schedule: Invalid value: "0 0 * * 7": must consist of the five fields`},
		"a reversed range":             {of("0 22-6 * * *", "", "1h"), `schedule: Invalid value: "0 22-6 * * *": must consist`},
		"no date at all":               {of("0 0 30 2 *", "", "1h"), `schedule: Invalid value: "0 0 30 2 *": never matches`},
		"the 31st of short months":     {of("0 0 31 2,4,6,9,11 *", "", "1h"), `schedule: Invalid value: "0 0 31 2,4,6,9,11 *": never`},
		"an empty list":                {of("0 , * * *", "", "1h"), `schedule: Invalid value: "0 , * * *": never matches`},
		"every":                        {of("@every 1h", "", "1h"), `schedule: Invalid value: "@every 1h": @every has no start time`},
		"an unknown descriptor":        {of("@reboot", "", "1h"), `schedule: Invalid value: "@reboot": must consist of the five fields`},
		"a zone in the schedule":       {of("TZ=UTC 0 0 * * *", "", "1h"), `schedule: Invalid value: "TZ=UTC 0 0 * * *": must not`},
		"another zone in the schedule": {of("CRON_TZ=UTC 0 0 * * *", "", "1h"), `schedule: Invalid value: "CRON_TZ=UTC 0 0 * * *": must`},
		"only a zone":                  {of("TZ=", "", "1h"), `schedule: Invalid value: "TZ=": must not contain a time zone`},
		"no such zone":                 {of("@daily", "Europe/Atlantis", "1h"), `timeZone: Invalid value: "Europe/Atlantis": must be a name`},
		"the zone of the computer":     {of("@daily", "Local", "1h"), `timeZone: Invalid value: "Local": must be a name`},
		"a file":                       {of("@daily", "../../etc/passwd", "1h"), `timeZone: Invalid value: "../../etc/passwd": must`},
		"too short":                    {of("@daily", "", "59s"), `duration: Invalid value: "59s": must be from 1m to 168h`},
		"too long":                     {of("@daily", "", "169h"), `duration: Invalid value: "169h0m0s": must be from 1m to 168h`},
		"parts of a second":            {of("@daily", "", "90.5s"), `duration: Invalid value: "1m30.5s": must be a whole number of seconds`},
	} {
		t.Run(name, func(t *testing.T) {
			good := of("@daily", "", "1h")
			set, errs := Parse(field.NewPath("spec", "windows"), []v1beta1.DisruptionWindow{good, test.window})
			if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), "spec.windows[1]."+test.wanted) || len(set) != 1 {
				t.Errorf("%d windows, %v, want spec.windows[1].%s", len(set), errs, test.wanted)
			}
		})
	}
	_, errs := Parse(field.NewPath("w"), []v1beta1.DisruptionWindow{of("x", "y", "1s")})
	var fields []string
	for _, e := range errs {
		fields = append(fields, e.Field)
	}
	if want := []string{"w[0].schedule", "w[0].timeZone", "w[0].duration"}; !slices.Equal(fields, want) {
		t.Errorf("a window with three invalid fields has errors of %v, want %v", fields, want)
	}
}

// A controller evaluates 10,000 budgets, so Open and NextChange must not allocate memory.
func TestWindowsDoNotAllocate(t *testing.T) {
	set := mustParse(t, of("0 22 * * 1-5", "Europe/Berlin", "8h"), of("* * * * *", "America/New_York", "1m"))
	at := timeOf(t, "2026-05-05T12:00:00Z")
	if n := testing.AllocsPerRun(10, func() { set.Open(at); set.NextChange(at) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkWindows(b *testing.B) {
	at := timeOf(b, "2038-05-05T12:00:00Z") // the library uses a rule instead of a table
	for name, windows := range map[string][]v1beta1.DisruptionWindow{
		"nightly":      {of("0 22 * * 1-5", "Europe/Berlin", "8h")},
		"leap days":    {of("0 0 29 2 *", "Europe/Berlin", "8h")},
		"each minute":  {of("* * * * *", "Europe/Berlin", "1m")},
		"in turns":     {of("*/2 * * * *", "Europe/Berlin", "1m"), of("1-59/2 * * * *", "Europe/Berlin", "1m")},
		"16 schedules": slices.Repeat([]v1beta1.DisruptionWindow{of("0 22 * * 1-5", "Europe/Berlin", "8h")}, 16),
	} {
		b.Run(fmt.Sprintf("parse/%s", name), func(b *testing.B) {
			for b.Loop() {
				_, _ = Parse(nil, windows)
			}
		})
		set := mustParse(b, windows...)
		b.Run(fmt.Sprintf("open/%s", name), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				set.Open(at)
			}
		})
		b.Run(fmt.Sprintf("next/%s", name), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				set.NextChange(at)
			}
		})
	}
}

func timeOf(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
