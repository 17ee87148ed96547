package overshoot

import (
	"testing"
	"time"
)

var (
	start  = time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)
	limits = Limits{Tolerance: 2, Hysteresis: 1, Period: time.Minute}
)

func observe(seconds, wanted, live int, change ...func(*Observation)) Observation {
	s := Observation{Now: start.Add(time.Duration(seconds) * time.Second), WantedMachines: wanted, RecordedMachines: wanted, LiveMachines: live}
	for _, f := range change {
		f(&s)
	}
	return s
}

func isFrozen(s *Observation) { s.IsFrozen = true }
func unfreeze(s *Observation) { s.Unfreeze = true }
func nothing(s *Observation)  { s.RecordedMachines = 0 }
func recorded(s *Observation) { s.RecordedMachines = s.LiveMachines }

// Rules: overshoot-freezes-owner, former-size-tolerated, freeze-ends-with-recovery, unfreeze-annotation.
func TestDecide(t *testing.T) {
	for name, test := range map[string]struct {
		// before contains earlier observations. The test also carries out the steps that Decide returns for these
		// observations.
		before      []Observation
		observation Observation
		want        Decision
	}{
		"as many as wanted":           {observation: observe(0, 3, 3), want: Decision{Step: Keep, MaxMachines: 5}},
		"as many as tolerated":        {observation: observe(0, 3, 5), want: Decision{Step: Keep, MaxMachines: 5}},
		"one more":                    {observation: observe(0, 3, 6), want: Decision{Step: Freeze, MaxMachines: 5}},
		"none wanted":                 {observation: observe(0, 0, 3), want: Decision{Step: Freeze, MaxMachines: 2}},
		"still too many":              {observation: observe(0, 3, 5, isFrozen), want: Decision{Step: Keep, MaxMachines: 5}},
		"few enough":                  {observation: observe(0, 3, 4, isFrozen), want: Decision{Step: Thaw, MaxMachines: 5}},
		"too few":                     {observation: observe(0, 3, 0, isFrozen), want: Decision{Step: Thaw, MaxMachines: 5}},
		"unfrozen by the annotation":  {observation: observe(0, 3, 9, isFrozen, unfreeze), want: Decision{Step: Thaw, MaxMachines: 5}},
		"annotation without a freeze": {observation: observe(0, 3, 9, unfreeze), want: Decision{Step: Thaw, MaxMachines: 5}},
		"frozen just now, few enough": {before: []Observation{observe(0, 3, 6)}, observation: observe(20, 3, 3, isFrozen),
			want: Decision{Step: Keep, MaxMachines: 5, RequeueAfter: 40 * time.Second}},
		"frozen a period ago": {before: []Observation{observe(0, 3, 6)}, observation: observe(60, 3, 3, isFrozen),
			want: Decision{Step: Thaw, MaxMachines: 5}},
		"thawed just now, too many": {before: []Observation{observe(0, 3, 3, isFrozen)}, observation: observe(59, 3, 6),
			want: Decision{Step: Keep, MaxMachines: 5, RequeueAfter: time.Second}},
		"thawed a period ago": {before: []Observation{observe(0, 3, 3, isFrozen)}, observation: observe(60, 3, 6),
			want: Decision{Step: Freeze, MaxMachines: 5}},
		"frozen just now, with the annotation": {before: []Observation{observe(0, 3, 6)}, observation: observe(1, 3, 6, isFrozen, unfreeze),
			want: Decision{Step: Thaw, MaxMachines: 5}},
		"fewer wanted just now": {before: []Observation{observe(0, 9, 9)}, observation: observe(10, 3, 9),
			want: Decision{Step: Keep, MaxMachines: 11, RequeueAfter: time.Minute}},
		"fewer wanted, but more created": {before: []Observation{observe(0, 9, 9)}, observation: observe(10, 3, 12),
			want: Decision{Step: Freeze, MaxMachines: 11}},
		"fewer wanted a while ago": {before: []Observation{observe(0, 9, 9), observe(10, 3, 9)}, observation: observe(69, 3, 9),
			want: Decision{Step: Keep, MaxMachines: 11, RequeueAfter: time.Second}},
		"fewer wanted a period ago": {before: []Observation{observe(0, 9, 9), observe(10, 3, 9)}, observation: observe(70, 3, 9),
			want: Decision{Step: Freeze, MaxMachines: 5}},
		"fewer wanted twice": {before: []Observation{observe(0, 9, 9), observe(10, 8, 9), observe(60, 3, 9)},
			observation: observe(100, 3, 9), want: Decision{Step: Keep, MaxMachines: 11, RequeueAfter: 20 * time.Second}},
		"fewer, then more": {before: []Observation{observe(0, 9, 9), observe(10, 3, 9), observe(20, 9, 9)},
			observation: observe(30, 9, 12), want: Decision{Step: Freeze, MaxMachines: 11}},
		"a new process, fewer wanted": {observation: observe(0, 3, 9, recorded),
			want: Decision{Step: Keep, MaxMachines: 11, RequeueAfter: time.Minute}},
		"a new process, none recorded": {observation: observe(0, 3, 9, nothing), want: Decision{Step: Freeze, MaxMachines: 5}},
		"frozen, fewer wanted just now": {before: []Observation{observe(0, 9, 12), observe(70, 3, 8, isFrozen)},
			observation: observe(80, 3, 8, isFrozen), want: Decision{Step: Keep, MaxMachines: 11}},
	} {
		t.Run(name, func(t *testing.T) {
			var h History
			for _, s := range test.before {
				h = h.Learn(s, limits)
				if Decide(h, s, limits).Step != Keep {
					h = h.AfterStep(s.Now, limits)
				}
			}
			if got := Decide(h.Learn(test.observation, limits), test.observation, limits); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// Rule: former-size-tolerated.
func TestMachinesOfAdoptedSetAreToleratedForAPeriod(t *testing.T) {
	h := History{}.Learn(observe(0, 3, 3), limits)
	joined := observe(100, 3, 13, recorded)
	h = h.ForgetWanted().Learn(joined, limits)
	if got := Decide(h, joined, limits); got.Step != Keep || got.RequeueAfter != limits.Period {
		t.Errorf("at first: %+v", got)
	}
	if got := Decide(h, observe(160, 3, 13), limits); got.Step != Freeze {
		t.Errorf("after a period: %+v", got)
	}
}

func TestLimits(t *testing.T) {
	for _, test := range []struct {
		limits Limits
		valid  bool
	}{
		{Limits{Tolerance: 2, Hysteresis: 1, Period: time.Minute}, true},
		{Limits{Tolerance: 0, Hysteresis: 0, Period: 1}, true},
		{Limits{Tolerance: -1, Hysteresis: -1, Period: 1}, false},
		{Limits{Tolerance: 1, Hysteresis: 2, Period: 1}, false},
		{Limits{Tolerance: 1, Hysteresis: -1, Period: 1}, false},
		{Limits{Tolerance: 1, Hysteresis: 1}, false},
	} {
		if err := test.limits.Validate(); (err == nil) != test.valid {
			t.Errorf("%+v: %v", test.limits, err)
		}
	}
}

// FuzzDecide changes a fleet at random and checks each step.
//
// Rules: overshoot-freezes-owner, former-size-tolerated, freeze-ends-with-recovery.
func FuzzDecide(f *testing.F) {
	f.Add(uint8(2), uint8(1), []byte{3, 3, 10, 3, 9, 30, 3, 9, 80, 3, 2, 90})
	f.Add(uint8(0), uint8(0), []byte{200, 200, 1, 1, 200, 50, 1, 200, 61, 1, 1, 61})
	f.Fuzz(func(t *testing.T, up, down uint8, story []byte) {
		l := Limits{Tolerance: int(up), Hysteresis: min(int(down), int(up)), Period: time.Minute}
		var h History
		var stepped time.Time
		now, frozen := start, false
		check := func(s Observation) Decision {
			h = h.Learn(s, l)
			d := Decide(h, s, l)
			switch {
			case d.Step == Freeze && (frozen || s.LiveMachines <= s.WantedMachines+l.Tolerance):
				t.Fatalf("freezes %+v", s)
			case d.Step == Thaw && (!frozen || s.LiveMachines > s.WantedMachines+l.Tolerance-l.Hysteresis):
				t.Fatalf("thaws %+v", s)
			case d.Step != Keep && !stepped.IsZero() && s.Now.Sub(stepped) < l.Period:
				t.Fatalf("a step %s after the last: %+v", s.Now.Sub(stepped), s)
			case d.RequeueAfter < 0 || d.RequeueAfter > l.Period:
				t.Fatalf("waits %s: %+v", d.RequeueAfter, s)
			}
			if d.Step != Keep {
				stepped, frozen, h = s.Now, d.Step == Freeze, h.AfterStep(s.Now, l)
			}
			return d
		}
		var last Observation
		for ; len(story) >= 3; story = story[3:] {
			now = now.Add(time.Duration(story[2]) * time.Second)
			last = Observation{Now: now, WantedMachines: int(story[0]), RecordedMachines: int(story[1]) / 2,
				LiveMachines: int(story[1]), IsFrozen: frozen}
			check(last)
		}
		// Requeues alone must bring the fleet to its final state.
		for range 4 {
			last.IsFrozen = frozen
			d := check(last)
			if d.Step != Keep {
				d.RequeueAfter = l.Period
			}
			last.Now = last.Now.Add(d.RequeueAfter)
		}
		if over, recovered := last.LiveMachines > last.WantedMachines+l.Tolerance,
			last.LiveMachines <= last.WantedMachines+l.Tolerance-l.Hysteresis; over && !frozen ||
			recovered && frozen {
			t.Fatalf("ends with frozen=%v: %+v", frozen, last)
		}
	})
}
