package orphans

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/internal/health/orphans/ledger"
	"machinist.dev/machinist/pkg/provider"
)

func part(n int) provider.Leftover {
	in := lost(n)
	return provider.Leftover{ID: fmt.Sprintf("nic/m-%d", n), ClusterID: in.ClusterID, MachineUID: in.MachineUID,
		MachineKey: in.MachineKey, LaunchTime: in.LaunchTime}
}

// Rule: leftover-parts-are-orphans.
func TestLeftoversFollowTheRulesForInstances(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*State, []provider.Leftover)
		want   Outcome
	}{
		{"orphans", nil, OutcomeDelete},
		{"seen for the first time", func(s *State, _ []provider.Leftover) { s.PreviousObservations = nil }, OutcomeUnconfirmed},
		{"of another cluster", func(_ *State, p []provider.Leftover) { p[0].ClusterID, p[1].ClusterID = "theirs", "theirs" },
			OutcomeOtherInstallation},
		{"without a UID", func(_ *State, p []provider.Leftover) { p[0].MachineUID, p[1].MachineUID = "", "" }, OutcomeUntagged},
		{"without a name", func(_ *State, p []provider.Leftover) { p[0].MachineKey, p[1].MachineKey = "", "" }, OutcomeUntagged},
		{"in another namespace", func(s *State, _ []provider.Leftover) { s.Namespace = "n" }, OutcomeOtherInstallation},
		{"the machine is at the API server", func(s *State, p []provider.Leftover) { s.LiveMachines[p[0].MachineUID] = true }, OutcomeOwned},
		{"the machine is launching", func(s *State, p []provider.Leftover) { s.ProviderIDs[p[0].MachineUID] = "" }, OutcomeOwned},
		{"the machine has an instance", func(s *State, p []provider.Leftover) {
			s.ProviderIDs[p[0].MachineUID] = "sim:///other"
		}, OutcomeOwned},
		{"an instance of the machine is listed", func(s *State, _ []provider.Leftover) {
			s.Instances = []provider.Instance{lost(1)}
		}, OutcomeOwned},
		{"the API server did not answer", func(s *State, _ []provider.Leftover) { s.LiveMachines = nil }, OutcomeUndetermined},
		{"one part is young", func(_ *State, p []provider.Leftover) {
			p[1].LaunchTime = ago(20*time.Minute - 1)
		}, OutcomeTooYoung},
		{"of unknown age, seen long ago", func(_ *State, p []provider.Leftover) { p[1].LaunchTime = time.Time{} }, OutcomeDelete},
		{"of unknown age, seen recently", func(s *State, p []provider.Leftover) {
			p[1].LaunchTime = time.Time{}
			for id, observation := range s.PreviousObservations {
				observation.FirstSeen = ago(10 * time.Minute)
				s.PreviousObservations[id] = observation
			}
		}, OutcomeTooYoung},
		{"after an outage", func(s *State, _ []provider.Leftover) { s.StableSince = ago(time.Minute) }, OutcomeAfterOutage},
		{"none may be removed", func(s *State, _ []provider.Leftover) { s.MaxDeletes = 0 }, OutcomeOverLimit},
		{"orphans are only reported", func(s *State, _ []provider.Leftover) { s.ReportOnly = true }, OutcomeReport},
	} {
		t.Run(tc.name, func(t *testing.T) {
			disk := part(1)
			disk.ID = "disk/m-1"
			parts := []provider.Leftover{part(1), disk}
			s := State{Rules: rules(), Now: now, StableSince: ago(time.Hour), ProviderIDs: map[types.UID]string{},
				LiveMachines: map[types.UID]bool{"uid-9": true}}
			id := groupLeftovers("ns/small", parts, map[string]bool{})[0].ID
			s.PreviousObservations = Observations{id: {Machine: "uid-1", FirstSeen: ago(30 * time.Minute)}}
			if tc.change != nil {
				tc.change(&s, parts)
			}
			s.Leftovers = groupLeftovers("ns/small", parts, map[string]bool{})
			plan := Decide(s)
			for _, d := range plan.Decisions {
				if len(d.Parts) > 0 && (d.Outcome != tc.want || len(d.Parts) != 2) {
					t.Errorf("decided %+v, want %s", d, tc.want)
				}
			}
			if len(plan.Decisions) != 1+len(s.Instances) {
				t.Errorf("decided %+v", plan.Decisions)
			}
		})
	}
}

func (w *testCollector) leave(n int, ids ...string) (l provider.Leftover) {
	for _, id := range ids {
		l = part(n)
		l.ID, l.MachineKey = id, fmt.Sprintf("%s/m-%d", w.namespace, n)
		w.cloud.Leftovers["small"] = append(w.cloud.Leftovers["small"], l)
	}
	return l
}

// Rule: leftover-parts-are-orphans.
func TestLeftoversOfLostMachineAreRemovedInSecondPass(t *testing.T) {
	w := newTestCollector(t)
	w.collector.Ledger = ledger.Store{Client: w.api, Namespace: w.namespace}
	w.classOf("twin", "small") // The list of this class contains the same parts.
	w.leave(1, "x/nic-0", "x/disk-0")
	w.reconcile()
	if page, _ := w.page(); page.Total != 1 || len(page.Entries) != 1 || page.Entries[0].ProviderID != "" ||
		len(page.Entries[0].Parts) != 2 {
		t.Errorf("kept %+v", page)
	}
	if left := w.cloud.Leftovers["small"]; len(left) != 2 || w.cloud.DeleteCount() != 0 {
		t.Errorf("left %v after %d deletions", left, w.cloud.DeleteCount())
	}
	w.pass()
	if left := w.cloud.Leftovers["small"]; len(left) != 0 || w.cloud.DeleteCount() != 1 {
		t.Errorf("left %v after %d deletions", left, w.cloud.DeleteCount())
	}
	w.wantEvents(fmt.Sprintf("Normal OrphanDeleted small: Removing instances that have no Machine: parts of machine %s/m-1 without an instance (nic-0 disk-0)", w.namespace))
	if n := w.counted("deleted"); n != 1 {
		t.Errorf("counted %v", n)
	}
	w.pass()
	if page, _ := w.page(); page.Total != 0 || w.cloud.DeleteCount() != 1 {
		t.Errorf("kept %+v after %d deletions", page, w.cloud.DeleteCount())
	}
}

// Rule: leftover-parts-are-orphans.
func TestPartsOfExistingMachineAreKept(t *testing.T) {
	w := newTestCollector(t)
	launching := w.machine("launching", "small", "")
	running := w.machine("running", "small", "sim:///recorded")
	for i, uid := range []types.UID{launching.UID, running.UID} {
		w.leave(i, fmt.Sprint("x/nic-", i))
		w.cloud.Leftovers["small"][i].MachineUID = uid
	}
	w.reconcile()
	for range 3 {
		w.pass()
	}
	if left := w.cloud.Leftovers["small"]; len(left) != 2 || w.cloud.DeleteCount() != 0 {
		t.Errorf("left %v after %d deletions", left, w.cloud.DeleteCount())
	}
}

// A list may be stale. So the instance is read right before the removal, and the leftovers are kept if the instance
// exists.
//
// Rule: leftover-parts-are-orphans.
func TestPartsOfUnlistedInstanceAreKept(t *testing.T) {
	w := newTestCollector(t)
	l := w.leave(1, "x/nic-0")
	w.reconcile()
	hidden := w.createOrphan(1, func(in *provider.Instance) { in.MachineUID = l.MachineUID })
	w.cloud.OnList = func(string, int) error { w.cloud.Vanish(hidden.ProviderID); return nil }
	w.cloud.OnGet = func(string) error { w.cloud.Put("small", hidden); return nil }
	w.pass()
	if w.cloud.DeleteCount() != 0 || len(w.cloud.Leftovers["small"]) != 1 {
		t.Errorf("%d deletions were sent, left %v", w.cloud.DeleteCount(), w.cloud.Leftovers)
	}
	w.cloud.OnList = nil
	w.cloud.OnGet = func(string) error { return provider.Errorf(provider.Unavailable, "no answer") }
	w.cloud.Vanish(hidden.ProviderID)
	w.pass()
	w.pass()
	if w.cloud.DeleteCount() != 0 || w.counted("failed") == 0 {
		t.Errorf("%d deletions were sent although the cloud did not answer whether there is an instance", w.cloud.DeleteCount())
	}
}
