package conformance

import "machinist.dev/machinist/pkg/provider"

func adoptCases() []testCase {
	return []testCase{
		{name: "AdoptTags",
			rule:  "Adopt puts the tags on an instance that has none, again without harm; from then on it is the machine's.",
			needs: []need{needsAdopter, needsLaunch}, test: adoptTags},
		{name: "AdoptRefusesOthers",
			rule:  "Adopt of an instance that carries another's tags is FailedPrecondition and changes nothing.",
			needs: []need{needsAdopter}, test: adoptRefusesOthers},
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
