package reachability

import (
	"slices"
	"testing"
	"time"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

// outages returns one outage for each pair of numbers, its start and its end in seconds.
func outages(seconds ...float64) []Outage {
	var all []Outage
	for pair := range slices.Chunk(seconds, 2) {
		all = append(all, Outage{From: at(pair[0]), To: at(pair[1])})
	}
	return all
}

func equal(a, b []Outage) bool {
	return slices.EqualFunc(a, b, func(a, b Outage) bool { return a.From.Equal(b.From) && a.To.Equal(b.To) })
}

// Rule: reachability-by-two-probes.
func TestStateFollowsFromTheChecks(t *testing.T) {
	type probe struct {
		sent, over float64
		ok         bool
	}
	for _, tc := range []struct {
		name        string
		probes      []probe
		unreachable bool
		known       bool
		since       time.Time
		epoch       uint64
		past        []Outage
	}{
		{"no check yet", nil, true, false, at(0), 0, nil},
		{"it answers", []probe{{1, 2, true}}, false, true, at(2), 1, nil},
		{"it answers again", []probe{{1, 2, true}, {60, 61, true}}, false, true, at(2), 1, nil},
		{"it never answered", []probe{{1, 2, false}}, true, true, at(0), 0, nil},
		{"it answers after the process started", []probe{{1, 2, false}, {7, 8, true}}, false, true, at(8), 1, outages(0, 8)},
		{"one check fails", []probe{{1, 2, true}, {60, 70, false}}, false, true, at(2), 1, nil},
		{"single checks fail", []probe{{1, 2, true}, {60, 70, false}, {75, 76, true}, {130, 140, false}}, false,
			true, at(2), 1, nil},
		{"two fail in a row", []probe{{1, 2, true}, {60, 70, false}, {75, 85, false}}, true, true, at(60), 2, nil},
		{"it remains unreachable", []probe{{1, 2, true}, {60, 70, false}, {75, 85, false}, {90, 95, false}}, true, true,
			at(60), 2, nil},
		{"it answers again after an outage", []probe{{1, 2, true}, {60, 70, false}, {75, 85, false}, {90, 91, true}}, false, true, at(91), 3,
			outages(1, 91)},
		{"a second outage", []probe{{1, 2, false}, {5, 6, true}, {60, 60, false}, {61, 61, false}, {62, 62, true}}, false, true,
			at(62), 3, outages(0, 6, 5, 62)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := NewState(start)
			for _, l := range tc.probes {
				s = s.Observe(at(l.sent), at(l.over), l.ok)
			}
			if s.Unreachable != tc.unreachable || s.IsChecked() != tc.known || !s.ChangeTime.Equal(tc.since) ||
				s.Epoch != tc.epoch {
				t.Errorf("unreachable %t, known %t, since %s, epoch %d; want %t, %t, %s, %d", s.Unreachable, s.IsChecked(), s.ChangeTime, s.Epoch,
					tc.unreachable, tc.known, tc.since, tc.epoch)
			}
			if !equal(s.PastOutages, tc.past) {
				t.Errorf("past outages %v, want %v", s.PastOutages, tc.past)
			}
		})
	}
}

func TestObserveDoesNotChangeThePreviousState(t *testing.T) {
	s := NewState(start)
	for i := range 3 * maxOutages {
		before, past := s, slices.Clone(s.PastOutages)
		moment := at(float64(100 * i))
		s = s.Observe(moment, moment, false).Observe(moment, moment, false).Observe(moment.Add(time.Second),
			moment.Add(time.Second), true)
		if !equal(before.PastOutages, past) {
			t.Fatal("Observe changed the previous state")
		}
	}
	if n := len(s.PastOutages); n != maxOutages {
		t.Errorf("%d outages are kept, want %d", n, maxOutages)
	}
}

// Rule: outage-extends-drain.
func TestAClockStopsDuringOutages(t *testing.T) {
	for _, tc := range []struct {
		name               string
		past               []Outage
		began, counted     float64
		newBegan, newCount float64
	}{
		{"no outage", nil, 100, 0, 100, 0},
		{"it ended before the clock began", outages(10, 90), 100, 0, 100, 0},
		{"it ended when the clock began", outages(10, 100), 100, 0, 100, 0},
		{"the whole outage counts", outages(130, 190), 100, 0, 160, 190},
		{"the rest of the outage counts", outages(80, 190), 100, 0, 190, 190},
		{"two outages", outages(130, 140, 200, 250), 100, 0, 160, 250},
		{"two that adjoin", outages(130, 140, 140, 150), 100, 0, 120, 150},
		{"two that overlap count once", outages(130, 145, 140, 150), 100, 0, 120, 150},
		{"it was already counted", outages(130, 190), 160, 190, 160, 190},
		{"it was counted by another process for which it ended earlier", outages(128, 195), 160, 190, 165, 195},
		{"one was counted, another was not", outages(130, 190, 200, 210), 160, 190, 170, 210},
		{"parts of seconds", outages(130.4, 190.2), 100, 0, 161, 191},
		{"parts of seconds, already counted", outages(130.4, 190.2), 161, 191, 161, 191},
	} {
		t.Run(tc.name, func(t *testing.T) {
			began, counted := ExcludeOutages(tc.past, at(tc.began), at(tc.counted))
			if !began.Equal(at(tc.newBegan)) || !counted.Equal(at(tc.newCount)) {
				t.Errorf("began %s, counted %s; want %s, %s", began.Sub(start), counted.Sub(start), at(tc.newBegan).Sub(start),
					at(tc.newCount).Sub(start))
			}
		})
	}
}

// For every sequence of checks, the outages must be sorted by time. ExcludeOutages must never move the start of a
// timeout back or into the future, and must exclude each outage only once.
//
// Rule: outage-extends-drain.
func FuzzObserveAndExcludeOutages(f *testing.F) {
	f.Add([]byte{1, 0, 3, 0, 5, 1, 7, 1}, uint16(3))
	f.Add([]byte{0, 1, 0, 1, 0, 0, 0, 0, 0, 1}, uint16(0))
	f.Fuzz(func(t *testing.T, probes []byte, began uint16) {
		s, now, failed := NewState(start), start, 0
		stamp, counted := at(float64(began%600)), time.Time{}
		for i := 0; i+1 < len(probes); i += 2 {
			sent := now.Add(time.Duration(probes[i]) * 300 * time.Millisecond)
			now = sent.Add(time.Duration(probes[i+1]/2) * 70 * time.Millisecond)
			ok := probes[i+1]%2 == 1
			if failed++; ok {
				failed = 0
			}
			before := s
			s = s.Observe(sent, now, ok)
			switch {
			case ok && s.Unreachable:
				t.Fatal("unreachable after an answer")
			case !before.Unreachable && s.Unreachable != (failed >= failuresUntilUnreachable):
				t.Fatalf("unreachable is %t after %d failures", s.Unreachable, failed)
			case (before.Unreachable != s.Unreachable) != (before.Epoch != s.Epoch):
				t.Fatal("the epoch changed without the state, or the other way round")
			case s.ChangeTime.After(now):
				t.Fatal("Since is in the future")
			}
			for j, o := range s.PastOutages {
				if o.To.Before(o.From) || o.To.After(now) || j > 0 && o.To.Before(s.PastOutages[j-1].To) {
					t.Fatalf("outages %v", s.PastOutages)
				}
			}
			if stamp.After(now) {
				continue // The clock has not begun.
			}
			newStamp, newCounted := ExcludeOutages(s.PastOutages, stamp, counted)
			if newStamp.Before(stamp) || newStamp.After(now.Add(time.Second)) || newCounted.Before(counted) {
				t.Fatalf("the clock was moved from %s to %s at %s", stamp, newStamp, now)
			}
			if again, _ := ExcludeOutages(s.PastOutages, newStamp, newCounted); !again.Equal(newStamp) {
				t.Fatal("an outage counts twice")
			}
			stamp, counted = newStamp, newCounted
		}
	})
}

// Rule: refused-credentials-are-outage.
func TestRefusedCredentialsAreAnOutageUntilTheyAreAccepted(t *testing.T) {
	s := NewState(start).Observe(at(1), at(2), true)
	s = s.ObserveRefusedCredentials(at(60), at(61))
	if s.Unreachable {
		t.Error("one rejection counts as an outage")
	}
	s = s.ObserveRefusedCredentials(at(66), at(67))
	if !s.Unreachable || !s.CredentialsRefused || !s.ChangeTime.Equal(at(60)) || s.Epoch != 2 {
		t.Errorf("after two rejections: %+v", s)
	}
	if s = s.Observe(at(70), at(71), false); !s.Unreachable || !s.CredentialsRefused {
		t.Errorf("after a check that fails in another way: %+v", s)
	}
	if s = s.Observe(at(75), at(76), true); s.Unreachable || s.CredentialsRefused || !equal(s.PastOutages,
		outages(1, 76)) {
		t.Errorf("after the renewal: %+v", s)
	}
}
