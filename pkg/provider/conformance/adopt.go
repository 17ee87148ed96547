package conformance

import (
	"fmt"

	"machinist.dev/machinist/pkg/provider"
)

func adoptCases() []testCase {
	return []testCase{
		{name: "AdoptTags",
			rule: "Adopt sets the tags on an instance that has none, and can be repeated. Afterwards, the instance belongs to " +
				"the machine.",
			needs: []requirement{needsAdopter, needsLaunch}, test: adoptTags},
		{name: "AdoptRefusesOthers",
			rule:  "Adopt of an instance with the tags of another owner fails with FailedPrecondition and changes nothing.",
			needs: []requirement{needsAdopter}, test: adoptRefusesOthers},
		{name: "AdoptReplacesFormer",
			rule: "Adopt replaces the tags of the former identity that the request names, and no others. A lost or moved " +
				"control cluster finds its instances again in this way.",
			needs: []requirement{needsAdopter}, test: adoptReplacesFormer},
	}
}

func (t *trial) adoptRequest(s *subject) provider.AdoptRequest {
	return provider.AdoptRequest{Machine: s.Machine, Class: t.Class, ClusterID: s.cluster, ProviderID: s.providerID,
		Tags: s.tags()}
}

func adoptTags(t *trial) {
	s := t.subject()
	untagged := t.launchUntagged(s, nil)
	s.providerID, s.scope = untagged.providerID, untagged.scope
	for range 2 {
		in, err := t.driver.Adopt(t.Context(), t.adoptRequest(s))
		t.must(err, "Adopt")
		if in.ProviderID != s.providerID {
			t.fatalf("Adopt returns %q, want %q", in.ProviderID, s.providerID)
		}
		t.checkTags(in, s, "Adopt")
		t.checkExactlyOne(s)
	}
	t.delete(t.driver, t.deleteByID(s))
	t.awaitGone(s)
}

func adoptRefusesOthers(t *trial) {
	s := t.subject()
	t.launch(s)
	for who, other := range t.foreignOwners(s) {
		_, err := t.driver.Adopt(t.Context(), t.adoptRequest(other))
		other.providerID = "" // The cleanup must not delete the instance through this subject.
		t.wantCode(err, "Adopt by "+who, provider.FailedPrecondition)
		t.checkUnchanged(s, "Adopt by "+who)
	}
}

func adoptReplacesFormer(t *trial) {
	s := t.subject()
	t.launch(s)
	former := provider.Identity{ClusterID: s.cluster, MachineUID: s.Machine.UID}
	for who, other := range t.foreignOwners(s) {
		wrong := t.adoptRequest(other)
		wrong.FormerIdentity = &provider.Identity{ClusterID: former.ClusterID, MachineUID: former.MachineUID + "-unknown"}
		_, err := t.driver.Adopt(t.Context(), wrong)
		t.wantCode(err, "Adopt by "+who+" that names another former machine", provider.FailedPrecondition)
		t.checkUnchanged(s, "Adopt by "+who+" that names another former machine")
		wrong.FormerIdentity = &provider.Identity{ClusterID: former.ClusterID + "-unknown", MachineUID: former.MachineUID}
		_, err = t.driver.Adopt(t.Context(), wrong)
		t.wantCode(err, "Adopt by "+who+" that names another former cluster", provider.FailedPrecondition)
		t.checkUnchanged(s, "Adopt by "+who+" that names another former cluster")
		other.providerID = "" // The cleanup must not delete the instance through this subject.
	}
	// A restored Machine has the same name but a different UID.
	again := t.subjectOf(s.cluster + "-restored")
	again.Name, again.providerID, again.scope = s.Name, s.providerID, s.scope
	request := t.adoptRequest(again)
	request.FormerIdentity = &former
	for range 2 {
		t.await("Adopt with the former identity", func() (bool, string) {
			in, err := t.driver.Adopt(t.Context(), request)
			if provider.CodeOf(err) == provider.Aborted {
				return false, err.Error() // Machinist retries Adopt after this error.
			}
			t.must(err, "Adopt with the former identity")
			t.checkTags(in, again, "Adopt with the former identity")
			return true, ""
		})
	}
	s.providerID = "" // The instance no longer belongs to this machine.
	t.await("Get shows the tags of the restored machine", func() (bool, string) {
		in, err := t.driver.Get(t.Context(), t.byID(again))
		t.must(err, "Get by provider ID")
		return in.OwnedBy(again.cluster, again.Machine) == nil,
			fmt.Sprintf("it shows machine %q of cluster %q", in.MachineUID, in.ClusterID)
	})
	t.delete(t.driver, t.deleteByID(again))
	t.awaitGone(again)
}
