package orphans

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func rules() Rules {
	return Rules{ClusterID: "ours", Period: 30 * time.Minute, MinAge: 20 * time.Minute, MaxDeletes: 10}
}

func lost(n int) provider.Instance {
	return provider.Instance{
		ProviderID: fmt.Sprintf("sim:///i-%d", n), State: provider.StateRunning, LaunchTime: ago(time.Hour),
		ClusterID: "ours", MachineUID: types.UID(fmt.Sprintf("uid-%d", n)), MachineKey: fmt.Sprintf("ns/m-%d", n),
	}
}

func owned(s *State, n int) provider.Instance {
	in := lost(n)
	s.Live[in.MachineUID] = true
	return in
}

func seen(instances ...provider.Instance) Observations {
	out := Observations{}
	for _, in := range instances {
		out[in.ProviderID] = Observation{Machine: in.MachineUID, First: ago(30 * time.Minute)}
	}
	return out
}

// Rules: instance-owned-by-tags, orphan-without-machine, orphan-removed-after-two-passes, orphan-removals-limited,
// no-orphans-in-outage.
func TestOnlyInstancesWithoutOwnerAreOrphans(t *testing.T) {
	for _, tc := range []struct {
		name     string
		change   func(*State, *provider.Instance)
		want     Outcome
		observed bool // in the observations
	}{
		{"an orphan", nil, Delete, true},
		{"its removal has begun", func(_ *State, in *provider.Instance) { in.State = provider.StateTerminating },
			Delete, true},
		{"seen for the first time", func(s *State, _ *provider.Instance) { s.Before = nil }, Unconfirmed, true},
		{"seen before as another machine's", func(s *State, in *provider.Instance) {
			s.Before = Observations{in.ProviderID: {Machine: "another", First: ago(time.Hour)}}
		}, Unconfirmed, true},
		{"seen before as a duplicate", func(s *State, in *provider.Instance) {
			s.Before = Observations{in.ProviderID: {Machine: in.MachineUID, Duplicate: true, First: ago(time.Hour)}}
		}, Unconfirmed, true},
		{"of another cluster", func(_ *State, in *provider.Instance) { in.ClusterID = "theirs" }, OtherInstallation, false},
		{"of a cluster whose id begins with ours", func(_ *State, in *provider.Instance) { in.ClusterID = "ours/ns" },
			OtherInstallation, false},
		{"without a cluster ID", func(s *State, in *provider.Instance) { in.ClusterID, s.ClusterID = "", "" },
			OtherInstallation, false},
		{"without a UID", func(_ *State, in *provider.Instance) { in.MachineUID = "" }, Untagged, false},
		{"without a name", func(_ *State, in *provider.Instance) { in.MachineKey = "" }, Untagged, false},
		{"without a namespace", func(_ *State, in *provider.Instance) { in.MachineKey = "/m" }, Untagged, false},
		{"without a name in the key", func(_ *State, in *provider.Instance) { in.MachineKey = "ns/" }, Untagged, false},
		{"with a malformed key", func(_ *State, in *provider.Instance) { in.MachineKey = "ns/a/b" }, Untagged, false},
		{"without a provider ID", func(s *State, in *provider.Instance) {
			in.ProviderID = ""
			s.Before = seen(*in)
		}, Untagged, false},
		{"in our namespace", func(s *State, _ *provider.Instance) { s.Namespace = "ns" }, Delete, true},
		{"in another namespace", func(s *State, _ *provider.Instance) { s.Namespace = "n" }, OtherInstallation, false},
		{"its machine is at the API server", func(s *State, in *provider.Instance) { s.Live[in.MachineUID] = true },
			Owned, false},
		{"its machine is in the cache only", func(s *State, in *provider.Instance) { s.Recorded[in.MachineUID] = "" },
			Owned, false},
		{"its machine has recorded it", func(s *State, in *provider.Instance) { s.Recorded[in.MachineUID] = in.ProviderID },
			Owned, false},
		{"another machine has recorded it", func(s *State, in *provider.Instance) { s.Recorded["rescue"] = in.ProviderID },
			Owned, false},
		{"its machine has another instance", func(s *State, in *provider.Instance) {
			s.Recorded[in.MachineUID] = "sim:///other"
		}, Unconfirmed, true},
		{"its machine already had another instance in the pass before", func(s *State, in *provider.Instance) {
			s.Recorded[in.MachineUID] = "sim:///other"
			s.Before = Observations{in.ProviderID: {Machine: in.MachineUID, Duplicate: true, First: ago(time.Hour)}}
		}, Duplicate, true},
		{"the API server did not answer", func(s *State, _ *provider.Instance) { s.Live = nil }, Undetermined, false},
		{"no machine exists", func(s *State, _ *provider.Instance) {
			s.Live, s.Recorded = map[types.UID]bool{}, nil
		}, Delete, true},
		{"young", func(_ *State, in *provider.Instance) { in.LaunchTime = ago(20*time.Minute - 1) }, TooYoung, true},
		{"old by the provider's clock only, and seen recently", func(s *State, in *provider.Instance) {
			in.LaunchTime = ago(20*time.Minute + clockDifference - 1)
			s.Before = Observations{in.ProviderID: {Machine: in.MachineUID, First: ago(20*time.Minute - 1)}}
		}, TooYoung, true},
		{"old beyond clock differences, and seen recently", func(s *State, in *provider.Instance) {
			in.LaunchTime = ago(20*time.Minute + clockDifference)
			s.Before = Observations{in.ProviderID: {Machine: in.MachineUID, First: ago(time.Minute)}}
		}, Delete, true},
		{"just old enough", func(_ *State, in *provider.Instance) { in.LaunchTime = ago(20 * time.Minute) }, Delete, true},
		{"created in the future", func(_ *State, in *provider.Instance) { in.LaunchTime = ago(-time.Hour) }, TooYoung, true},
		{"of unknown age, seen long ago", func(_ *State, in *provider.Instance) { in.LaunchTime = time.Time{} },
			Delete, true},
		{"of unknown age, seen recently", func(s *State, in *provider.Instance) {
			in.LaunchTime = time.Time{}
			s.Before = Observations{in.ProviderID: {Machine: in.MachineUID, First: ago(10 * time.Minute)}}
		}, TooYoung, true},
		{"after an outage", func(s *State, _ *provider.Instance) { s.Stable = ago(30*time.Minute - 1) }, AfterOutage, true},
		{"during an outage", func(s *State, _ *provider.Instance) { s.Stable = time.Time{} }, AfterOutage, true},
		{"long after an outage", func(s *State, _ *provider.Instance) { s.Stable = ago(30 * time.Minute) }, Delete, true},
		{"none may be removed", func(s *State, _ *provider.Instance) { s.MaxDeletes = 0 }, OverLimit, true},
		{"orphans are only reported", func(s *State, _ *provider.Instance) { s.ReportOnly = true }, Report, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := lost(1)
			s := State{
				Rules: rules(), Now: now, Stable: ago(time.Hour), Before: seen(in),
				Recorded: map[types.UID]string{"uid-9": "sim:///i-9"}, Live: map[types.UID]bool{"uid-9": true},
			}
			if tc.change != nil {
				tc.change(&s, &in)
			}
			s.Instances = []provider.Instance{in}
			plan := Decide(s)
			if len(plan.Decisions) != 1 || plan.Decisions[0].Outcome != tc.want {
				t.Errorf("decided %+v, want %s", plan.Decisions, tc.want)
			}
			if _, observed := plan.Observations[in.ProviderID]; observed != tc.observed {
				t.Errorf("observed: %t, want %t", observed, tc.observed)
			}
		})
	}
}

// Rule: orphan-removals-limited.
func TestRemovalsAreLimitedAndFewestAttemptsComeFirst(t *testing.T) {
	s := State{Rules: rules(), Now: now, Stable: ago(time.Hour), Live: map[types.UID]bool{}, Before: Observations{}}
	s.MaxDeletes = 2
	for n := range 5 {
		in := lost(n)
		s.Instances = append(s.Instances, in, owned(&s, n+10), owned(&s, n+20))
		s.Before[in.ProviderID] = Observation{Machine: in.MachineUID, First: ago(time.Hour)}
	}
	// Two failed removals must not delay the others.
	for _, n := range []int{0, 1} {
		observation := s.Before[lost(n).ProviderID]
		observation.Attempts = 3
		s.Before[lost(n).ProviderID] = observation
	}
	oldest := s.Before[lost(4).ProviderID]
	oldest.First = ago(2 * time.Hour)
	s.Before[lost(4).ProviderID] = oldest

	var got []string
	for _, d := range Decide(s).Decisions {
		if d.Outcome == Delete {
			got = append(got, d.Instance.ProviderID)
		}
	}
	if want := []string{lost(4).ProviderID, lost(2).ProviderID}; !slices.Equal(got, want) {
		t.Errorf("removed %v, want %v", got, want)
	}
}

// Rule: orphan-removed-after-two-passes.
func TestConfirmRefusesChangedInstances(t *testing.T) {
	planned := lost(1)
	for name, tc := range map[string]struct {
		change func(*provider.Instance)
		want   bool
	}{
		"the same":              {func(*provider.Instance) {}, true},
		"in another state":      {func(in *provider.Instance) { in.State = provider.StateTerminating }, true},
		"without a launch time": {func(in *provider.Instance) { in.LaunchTime = time.Time{} }, true},
		"another instance":      {func(in *provider.Instance) { in.ProviderID += "0" }, false},
		"of another cluster":    {func(in *provider.Instance) { in.ClusterID = "theirs" }, false},
		"of another machine":    {func(in *provider.Instance) { in.MachineUID = "another" }, false},
		"under another name":    {func(in *provider.Instance) { in.MachineKey = "ns/another" }, false},
		"untagged": {func(in *provider.Instance) {
			in.ClusterID, in.MachineUID, in.MachineKey = "", "", ""
		}, false},
		"younger than planned": {func(in *provider.Instance) { in.LaunchTime = ago(time.Minute) }, false},
	} {
		read := planned
		tc.change(&read)
		if got := Confirm(rules(), &planned, &read); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
	if Confirm(rules(), &planned, nil) {
		t.Error("confirmed the removal of an instance that was not read")
	}
	untagged := planned
	untagged.ClusterID = ""
	if Confirm(Rules{}, &untagged, &untagged) {
		t.Error("confirmed the removal of an instance without a cluster ID for an installation without one")
	}
}

// Rules: instance-owned-by-tags, orphan-without-machine, orphan-removed-after-two-passes, orphan-removals-limited.
func FuzzOnlyOrphansAreRemoved(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, uint8(3), false)
	f.Add([]byte{255, 254, 253, 16, 32, 64, 128, 7, 15, 31, 63, 127}, uint8(0), true)
	f.Fuzz(func(t *testing.T, bits []byte, limit uint8, listed bool) {
		s := State{Rules: rules(), Now: now, Recorded: map[types.UID]string{}, Before: Observations{}}
		s.MaxDeletes = int(limit % 5)
		if limit&8 != 0 {
			s.Namespace = "ns"
		}
		if limit&16 != 0 {
			s.Stable = ago(time.Duration(limit) * time.Minute)
		}
		if listed {
			s.Live = map[types.UID]bool{}
		}
		for n := 0; n+1 < len(bits); n += 2 {
			a, b := bits[n], bits[n+1]
			in := lost(n)
			if a&1 != 0 {
				in.ClusterID = []string{"", "theirs"}[a>>7]
			}
			if a&2 != 0 {
				in.MachineUID = ""
			}
			if a&4 != 0 {
				in.MachineKey = []string{"", "other/m", "m", "ns/"}[a>>6]
			}
			in.LaunchTime = ago(time.Duration(b) * time.Minute)
			if a&8 != 0 {
				in.LaunchTime = time.Time{}
			}
			if a&16 != 0 {
				s.Before[in.ProviderID] = Observation{Machine: in.MachineUID, First: ago(time.Duration(b/2) * time.Minute),
					Attempts: int(b % 3), Duplicate: b&32 != 0}
			}
			if a&32 != 0 && listed {
				s.Live[in.MachineUID] = true
			}
			if b&1 != 0 {
				s.Recorded[in.MachineUID] = []string{"", in.ProviderID, "sim:///other"}[int(b)%3]
			}
			if b&2 != 0 {
				s.Leftovers = append(s.Leftovers, Leftovers{ID: in.ProviderID, Parts: []provider.Leftover{{
					ID: "nic", LaunchTime: in.LaunchTime, ClusterID: in.ClusterID, MachineUID: in.MachineUID,
					MachineKey: in.MachineKey,
				}}})
				continue
			}
			s.Instances = append(s.Instances, in)
		}
		before := maps.Clone(s.Before)
		plan := Decide(s)
		if len(plan.Decisions) != len(s.Instances)+len(s.Leftovers) {
			t.Fatalf("%d decisions about %d instances and %d leftovers", len(plan.Decisions), len(s.Instances), len(s.Leftovers))
		}
		removed := 0
		for _, d := range plan.Decisions {
			in := d.Instance
			if d.Outcome != Delete {
				continue
			}
			removed++
			_, cached := s.Recorded[in.MachineUID]
			observation, again := before[d.ID]
			switch {
			case in.ClusterID != "ours" || in.MachineUID == "" || in.MachineKey[:3] != "ns/" && s.Namespace != "":
				t.Errorf("removed %+v, which is not of this installation", in)
			case !listed || s.Live[in.MachineUID] || cached:
				t.Errorf("removed %+v, which has a Machine or may have one", in)
			case !again || observation.Machine != in.MachineUID || observation.Duplicate:
				t.Errorf("removed %+v, which was not seen before", in)
			case !in.LaunchTime.IsZero() && now.Sub(in.LaunchTime) < s.MinAge:
				t.Errorf("removed %+v, which is young", in)
			case s.Stable.IsZero() || now.Sub(s.Stable) < s.Period:
				t.Errorf("removed %+v after an outage", in)
			}
		}
		if removed > s.MaxDeletes {
			t.Errorf("removed %d, more than %d", removed, s.MaxDeletes)
		}
		for id := range plan.Observations {
			if !slices.ContainsFunc(plan.Decisions, func(d Decision) bool { return d.ID == id }) {
				t.Errorf("there is an observation of %s, which does not exist", id)
			}
		}
	})
}
