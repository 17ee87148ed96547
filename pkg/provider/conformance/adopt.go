package conformance

import (
	"fmt"

	"machinist.dev/machinist/pkg/provider"
)

func adoptCases() []testCase {
	return []testCase{
		{name: "AdoptTags",
			rule:  "Adopt puts the tags on an instance that has none, again without harm; from then on it is the machine's.",
			needs: []need{needsAdopter, needsLaunch}, test: adoptTags},
		{name: "AdoptRefusesOthers",
			rule:  "Adopt of an instance that carries another's tags is FailedPrecondition and changes nothing.",
			needs: []need{needsAdopter}, test: adoptRefusesOthers},
		{name: "AdoptReplacesFormer",
			rule: "Adopt replaces the tags of the identity that the request names as the former one, and no others: a lost or " +
				"moved control cluster finds its instances again.",
			needs: []need{needsAdopter}, test: adoptReplacesFormer},
	}
}

func (t *trial) adoption(s *subject) provider.AdoptRequest {
	return provider.AdoptRequest{Machine: s.Machine, Class: t.Class, ClusterID: s.cluster, ProviderID: s.providerID,
		Tags: s.tags()}
}

func adoptTags(t *trial) {
	s := t.subject()
	made := t.untagged(s, nil)
	s.providerID, s.scope = made.providerID, made.scope
	for range 2 {
		in, err := t.driver.Adopt(t.Context(), t.adoption(s))
		t.must(err, "Adopt")
		if in.ProviderID != s.providerID {
			t.fatalf("Adopt returns %q, want %q", in.ProviderID, s.providerID)
		}
		t.carries(in, s, "Adopt")
		t.exactlyOne(s)
	}
	t.delete(t.driver, t.deleteByID(s))
	t.awaitGone(s)
}

func adoptRefusesOthers(t *trial) {
	s := t.subject()
	t.launch(s)
	for who, other := range t.others(s) {
		_, err := t.driver.Adopt(t.Context(), t.adoption(other))
		other.providerID = "" // Not to be deleted when the case ends.
		t.wantCode(err, "Adopt by "+who, provider.FailedPrecondition)
		t.untouched(s, "Adopt by "+who)
	}
}

func adoptReplacesFormer(t *trial) {
	s := t.subject()
	t.launch(s)
	former := provider.Identity{ClusterID: s.cluster, MachineUID: s.Machine.UID}
	for who, other := range t.others(s) {
		wrong := t.adoption(other)
		wrong.Former = &provider.Identity{ClusterID: former.ClusterID, MachineUID: former.MachineUID + "-of-nobody"}
		_, err := t.driver.Adopt(t.Context(), wrong)
		t.wantCode(err, "Adopt by "+who+" that names another former machine", provider.FailedPrecondition)
		t.untouched(s, "Adopt by "+who+" that names another former machine")
		wrong.Former = &provider.Identity{ClusterID: former.ClusterID + "-of-nobody", MachineUID: former.MachineUID}
		_, err = t.driver.Adopt(t.Context(), wrong)
		t.wantCode(err, "Adopt by "+who+" that names another former cluster", provider.FailedPrecondition)
		t.untouched(s, "Adopt by "+who+" that names another former cluster")
		other.providerID = "" // Not to be deleted when the case ends.
	}
	// Of a restored Machine the name is the same, and the UID another one.
	again := t.subjectOf(s.cluster + "-restored")
	again.Name, again.providerID, again.scope = s.Name, s.providerID, s.scope
	request := t.adoption(again)
	request.Former = &former
	for range 2 {
		t.await("Adopt with the former identity", func() (bool, string) {
			in, err := t.driver.Adopt(t.Context(), request)
			if provider.CodeOf(err) == provider.Aborted {
				return false, err.Error() // Machinist tries again.
			}
			t.must(err, "Adopt with the former identity")
			t.carries(in, again, "Adopt with the former identity")
			return true, ""
		})
	}
	s.providerID = "" // It is not its machine's any more.
	t.await("Get shows the tags of the restored machine", func() (bool, string) {
		in, err := t.driver.Get(t.Context(), t.byID(again))
		t.must(err, "Get by provider ID")
		return in.OwnedBy(again.cluster, again.Machine) == nil, fmt.Sprintf("it shows %q of %q", in.MachineUID, in.ClusterID)
	})
	t.delete(t.driver, t.deleteByID(again))
	t.awaitGone(again)
}
