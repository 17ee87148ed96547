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
	s.LiveMachines[in.MachineUID] = true
	return in
}

func seen(instances ...provider.Instance) Observations {
	out := Observations{}
	for _, in := range instances {
		out[in.ProviderID] = Observation{Machine: in.MachineUID, FirstSeen: ago(30 * time.Minute)}
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
		{"an orphan", nil, OutcomeDelete, true},
		{"its removal has begun", func(_ *State, in *provider.Instance) { in.State = provider.StateTerminating },
			OutcomeDelete, true},
		{"seen for the first time", func(s *State, _ *provider.Instance) { s.PreviousObservations = nil }, OutcomeUnconfirmed, true},
		{"seen before as another machine's", func(s *State, in *provider.Instance) {
			s.PreviousObservations = Observations{in.ProviderID: {Machine: "another", FirstSeen: ago(time.Hour)}}
		}, OutcomeUnconfirmed, true},
		{"seen before as a duplicate", func(s *State, in *provider.Instance) {
			s.PreviousObservations = Observations{in.ProviderID: {Machine: in.MachineUID, Duplicate: true,
				FirstSeen: ago(time.Hour)}}
		}, OutcomeUnconfirmed, true},
		{"of another cluster", func(_ *State, in *provider.Instance) { in.ClusterID = "theirs" }, OutcomeOtherInstallation, false},
		{"of a cluster whose id begins with ours", func(_ *State, in *provider.Instance) { in.ClusterID = "ours/ns" },
			OutcomeOtherInstallation, false},
		{"without a cluster ID", func(s *State, in *provider.Instance) { in.ClusterID, s.ClusterID = "", "" },
			OutcomeOtherInstallation, false},
		{"without a UID", func(_ *State, in *provider.Instance) { in.MachineUID = "" }, OutcomeUntagged, false},
		{"without a name", func(_ *State, in *provider.Instance) { in.MachineKey = "" }, OutcomeUntagged, false},
		{"without a namespace", func(_ *State, in *provider.Instance) { in.MachineKey = "/m" }, OutcomeUntagged, false},
		{"without a name in the key", func(_ *State, in *provider.Instance) { in.MachineKey = "ns/" }, OutcomeUntagged, false},
		{"with a malformed key", func(_ *State, in *provider.Instance) { in.MachineKey = "ns/a/b" }, OutcomeUntagged, false},
		{"without a provider ID", func(s *State, in *provider.Instance) {
			in.ProviderID = ""
			s.PreviousObservations = seen(*in)
		}, OutcomeUntagged, false},
		{"in our namespace", func(s *State, _ *provider.Instance) { s.Namespace = "ns" }, OutcomeDelete, true},
		{"in another namespace", func(s *State, _ *provider.Instance) { s.Namespace = "n" }, OutcomeOtherInstallation, false},
		{"its machine is at the API server", func(s *State, in *provider.Instance) { s.LiveMachines[in.MachineUID] = true },
			OutcomeOwned, false},
		{"its machine is in the cache only", func(s *State, in *provider.Instance) { s.ProviderIDs[in.MachineUID] = "" },
			OutcomeOwned, false},
		{"its machine has recorded it", func(s *State, in *provider.Instance) { s.ProviderIDs[in.MachineUID] = in.ProviderID },
			OutcomeOwned, false},
		{"another machine has recorded it", func(s *State, in *provider.Instance) { s.ProviderIDs["rescue"] = in.ProviderID },
			OutcomeOwned, false},
		{"its machine has another instance", func(s *State, in *provider.Instance) {
			s.ProviderIDs[in.MachineUID] = "sim:///other"
		}, OutcomeUnconfirmed, true},
		{"its machine already had another instance in the pass before", func(s *State, in *provider.Instance) {
			s.ProviderIDs[in.MachineUID] = "sim:///other"
			s.PreviousObservations = Observations{in.ProviderID: {Machine: in.MachineUID, Duplicate: true,
				FirstSeen: ago(time.Hour)}}
		}, OutcomeDuplicate, true},
		{"the API server did not answer", func(s *State, _ *provider.Instance) { s.LiveMachines = nil }, OutcomeUndetermined, false},
		{"no machine exists", func(s *State, _ *provider.Instance) {
			s.LiveMachines, s.ProviderIDs = map[types.UID]bool{}, nil
		}, OutcomeDelete, true},
		{"young", func(_ *State, in *provider.Instance) { in.LaunchTime = ago(20*time.Minute - 1) }, OutcomeTooYoung, true},
		{"old by the provider's clock only, and seen recently", func(s *State, in *provider.Instance) {
			in.LaunchTime = ago(20*time.Minute + clockDifference - 1)
			s.PreviousObservations = Observations{in.ProviderID: {Machine: in.MachineUID, FirstSeen: ago(20*time.Minute - 1)}}
		}, OutcomeTooYoung, true},
		{"old beyond clock differences, and seen recently", func(s *State, in *provider.Instance) {
			in.LaunchTime = ago(20*time.Minute + clockDifference)
			s.PreviousObservations = Observations{in.ProviderID: {Machine: in.MachineUID, FirstSeen: ago(time.Minute)}}
		}, OutcomeDelete, true},
		{"just old enough", func(_ *State, in *provider.Instance) { in.LaunchTime = ago(20 * time.Minute) }, OutcomeDelete, true},
		{"created in the future", func(_ *State, in *provider.Instance) { in.LaunchTime = ago(-time.Hour) }, OutcomeTooYoung, true},
		{"of unknown age, seen long ago", func(_ *State, in *provider.Instance) { in.LaunchTime = time.Time{} },
			OutcomeDelete, true},
		{"of unknown age, seen recently", func(s *State, in *provider.Instance) {
			in.LaunchTime = time.Time{}
			s.PreviousObservations = Observations{in.ProviderID: {Machine: in.MachineUID, FirstSeen: ago(10 * time.Minute)}}
		}, OutcomeTooYoung, true},
		{"after an outage", func(s *State, _ *provider.Instance) { s.StableSince = ago(30*time.Minute - 1) }, OutcomeAfterOutage, true},
		{"during an outage", func(s *State, _ *provider.Instance) { s.StableSince = time.Time{} }, OutcomeAfterOutage, true},
		{"long after an outage", func(s *State, _ *provider.Instance) { s.StableSince = ago(30 * time.Minute) }, OutcomeDelete, true},
		{"none may be removed", func(s *State, _ *provider.Instance) { s.MaxDeletes = 0 }, OutcomeOverLimit, true},
		{"orphans are only reported", func(s *State, _ *provider.Instance) { s.ReportOnly = true }, OutcomeReport, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := lost(1)
			s := State{
				Rules: rules(), Now: now, StableSince: ago(time.Hour), PreviousObservations: seen(in),
				ProviderIDs: map[types.UID]string{"uid-9": "sim:///i-9"}, LiveMachines: map[types.UID]bool{"uid-9": true},
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
	s := State{Rules: rules(), Now: now, StableSince: ago(time.Hour), LiveMachines: map[types.UID]bool{},
		PreviousObservations: Observations{}}
	s.MaxDeletes = 2
	for n := range 5 {
		in := lost(n)
		s.Instances = append(s.Instances, in, owned(&s, n+10), owned(&s, n+20))
		s.PreviousObservations[in.ProviderID] = Observation{Machine: in.MachineUID, FirstSeen: ago(time.Hour)}
	}
	// Two failed removals must not delay the others.
	for _, n := range []int{0, 1} {
		observation := s.PreviousObservations[lost(n).ProviderID]
		observation.Attempts = 3
		s.PreviousObservations[lost(n).ProviderID] = observation
	}
	oldest := s.PreviousObservations[lost(4).ProviderID]
	oldest.FirstSeen = ago(2 * time.Hour)
	s.PreviousObservations[lost(4).ProviderID] = oldest

	var got []string
	for _, d := range Decide(s).Decisions {
		if d.Outcome == OutcomeDelete {
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
		s := State{Rules: rules(), Now: now, ProviderIDs: map[types.UID]string{}, PreviousObservations: Observations{}}
		s.MaxDeletes = int(limit % 5)
		if limit&8 != 0 {
			s.Namespace = "ns"
		}
		if limit&16 != 0 {
			s.StableSince = ago(time.Duration(limit) * time.Minute)
		}
		if listed {
			s.LiveMachines = map[types.UID]bool{}
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
				s.PreviousObservations[in.ProviderID] = Observation{Machine: in.MachineUID,
					FirstSeen: ago(time.Duration(b/2) * time.Minute),
					Attempts:  int(b % 3), Duplicate: b&32 != 0}
			}
			if a&32 != 0 && listed {
				s.LiveMachines[in.MachineUID] = true
			}
			if b&1 != 0 {
				s.ProviderIDs[in.MachineUID] = []string{"", in.ProviderID, "sim:///other"}[int(b)%3]
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
		before := maps.Clone(s.PreviousObservations)
		plan := Decide(s)
		if len(plan.Decisions) != len(s.Instances)+len(s.Leftovers) {
			t.Fatalf("%d decisions about %d instances and %d leftovers", len(plan.Decisions), len(s.Instances), len(s.Leftovers))
		}
		removed := 0
		for _, d := range plan.Decisions {
			in := d.Instance
			if d.Outcome != OutcomeDelete {
				continue
			}
			removed++
			_, cached := s.ProviderIDs[in.MachineUID]
			observation, again := before[d.ID]
			switch {
			case in.ClusterID != "ours" || in.MachineUID == "" || in.MachineKey[:3] != "ns/" && s.Namespace != "":
				t.Errorf("removed %+v, which is not of this installation", in)
			case !listed || s.LiveMachines[in.MachineUID] || cached:
				t.Errorf("removed %+v, which has a Machine or may have one", in)
			case !again || observation.Machine != in.MachineUID || observation.Duplicate:
				t.Errorf("removed %+v, which was not seen before", in)
			case !in.LaunchTime.IsZero() && now.Sub(in.LaunchTime) < s.MinAge:
				t.Errorf("removed %+v, which is young", in)
			case s.StableSince.IsZero() || now.Sub(s.StableSince) < s.Period:
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
