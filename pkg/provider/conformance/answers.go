package conformance

import (
	"slices"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

func answerCases() []testCase {
	return []testCase{
		{name: "UnsteadyLists",
			rule: "If the cloud's list repeats entries and changes its order, List omits no instance and returns none twice " +
				"on a page. All other calls still work.",
			needs: []requirement{injecting(UnsteadyLists)}, test: unsteadyLists},
		{name: "OtherCase",
			rule: "An instance whose ID or name the cloud spells in another case keeps its provider ID, and is still found " +
				"and deleted.",
			needs: []requirement{injecting(OtherCase)}, test: otherCase},
		{name: "StateGoesBack",
			rule: "If the cloud shows an instance in an earlier state again, the driver does not report it as Failed or " +
				"Stopped. Create still returns this instance, and Delete deletes it.",
			needs: []requirement{injecting(StateGoesBack)}, test: stateGoesBack},
		{name: "PartlyUnreadable",
			rule: "If the cloud answers only in part, because the tags of an instance may not be read, Get does not return " +
				"NotFound, List does not omit the instance, Delete does not report Gone, and Create creates no second instance.",
			needs: []requirement{injecting(PartlyUnreadable)}, test: partlyUnreadable},
		{name: "HugeAnswers",
			rule:  "A call fails with an ambiguous code if the answer of the cloud is hundreds of megabytes long.",
			needs: []requirement{injecting(HugeAnswers)}, test: hugeAnswers},
		{name: "OthersWithOurName",
			rule: "An instance of another owner with the name of one of Machinist's instances is never returned, listed or " +
				"deleted.",
			needs: []requirement{needsNamed}, test: othersWithOurName},
		{name: "GuestAddressesAreMarked",
			rule:  "An address that only the guest reports is in GuestAddresses or missing, and never in Addresses.",
			needs: []requirement{injecting(GuestClaims)}, test: guestAddressesAreMarked},
	}
}

// claimedAddress is an address that is reserved for documentation. No instance has it.
const claimedAddress = "192.0.2.254"

func guestAddressesAreMarked(t *trial) {
	s := t.subject()
	t.launch(s)
	t.awaitRunning(s)
	t.inject(Fault{Kind: GuestClaims, Address: claimedAddress})
	check := func(how string, in *provider.Instance) {
		t.Helper()
		for _, a := range in.Addresses {
			if a.Address == claimedAddress {
				t.Errorf("%s: the field Addresses contains the address %s, which only the guest reports", how, claimedAddress)
			}
		}
	}
	for how, req := range map[string]provider.GetRequest{"Get by provider ID": t.byID(s), "Get by tags": t.byTags(s)} {
		in, err := t.driver.Get(t.Context(), req)
		t.must(err, "%s", how)
		check(how, in)
	}
	for _, in := range t.listed(s) {
		check("List", &in)
	}
}

func unsteadyLists(t *trial) {
	for range t.Instances {
		t.launch(t.subject())
	}
	t.inject(Fault{Kind: UnsteadyLists})
	for range 3 {
		pages, err := t.pages(t.ClusterID)
		t.must(err, "List, page %d", len(pages)+1)
		seen := map[string]bool{}
		for _, page := range pages {
			on := map[string]bool{}
			for _, in := range page.Instances {
				if on[in.ProviderID] {
					t.Errorf("List returns %s twice on one page", in.ProviderID)
				}
				on[in.ProviderID], seen[in.ProviderID] = true, true
			}
		}
		for _, s := range t.subjects {
			if !seen[s.providerID] {
				t.Errorf("List of a cloud that changes the order of its lists omits %s", s.providerID)
			}
		}
	}
	s, remaining := t.subjects[0], t.subjects[1:]
	t.retryCreate(t.restart(), s, "while lists repeat entries")
	t.awaitVisible(s)
	t.delete(t.restart(), t.deleteByTags(s))
	t.awaitGone(s)
	for _, other := range remaining {
		t.checkUnchanged(other, "Delete by tags for another machine")
	}
}

func otherCase(t *trial) {
	before := t.resourcesNow()
	s, fresh := t.subject(), t.subject()
	t.launch(s)
	t.inject(Fault{Kind: OtherCase})
	t.create(fresh)
	for _, s := range []*subject{s, fresh} {
		t.retryCreate(t.restart(), s, "while the cloud spells IDs and names in another case")
		t.checkExactlyOne(s)
	}
	t.delete(t.restart(), t.deleteByID(s))
	t.delete(t.restart(), t.deleteByTags(fresh))
	t.checkNothingLeft(before, "Delete while the cloud spells IDs and names in another case")
	for _, s := range []*subject{s, fresh} {
		t.awaitGone(s)
	}
}

func stateGoesBack(t *trial) {
	before := t.resourcesNow()
	s := t.subject()
	t.launch(s)
	t.awaitRunning(s)
	t.inject(Fault{Kind: StateGoesBack})
	check := func(in *provider.Instance, how string) {
		t.Helper()
		if in.State != provider.StatePending && in.State != provider.StateRunning {
			t.Errorf("%s shows %s in state %s: an instance that returns to an earlier state has not failed", how,
				in.ProviderID, in.State)
		}
		if in.ProviderID != s.providerID {
			t.Errorf("%s shows %q, want %q", how, in.ProviderID, s.providerID)
		}
		t.checkTags(in, s, how)
	}
	back := false
	for range 4 {
		in, err := t.driver.Get(t.Context(), t.byID(s))
		t.must(err, "Get by provider ID")
		check(in, "Get by provider ID")
		back = back || in.State != provider.StateRunning
		in, err = t.driver.Get(t.Context(), t.byTags(s))
		t.must(err, "Get by tags")
		check(in, "Get by tags")
		for _, in := range t.listed(s) {
			check(&in, "List")
		}
	}
	if !back {
		t.Logf("Get by provider ID never showed an earlier state: the case may have tested nothing")
	}
	t.retryCreate(t.restart(), s, "while the cloud shows the instance in an earlier state")
	t.checkExactlyOne(s)
	t.deleteAsMachinist(t.driver, t.deleteByID(s), time.Now())
	t.checkNothingLeft(before, "Delete of an instance that the cloud shows in an earlier state")
	t.awaitGone(s)
}

func partlyUnreadable(t *trial) {
	s := t.launchRunning()
	end := t.inject(Fault{Kind: PartlyUnreadable})
	for how, req := range map[string]provider.GetRequest{"provider ID": t.byID(s), "tags": t.byTags(s)} {
		if _, err := t.restart().Get(t.Context(), req); provider.IsNotFound(err) {
			t.Errorf("Get by %s of an instance whose tags may not be read: %v; want the instance or another error", how, err)
		}
	}
	if pages, err := t.pages(s.cluster); err == nil {
		listed := false
		for _, page := range pages {
			listed = listed || slices.Contains(ids(page.Instances), s.providerID)
		}
		if !listed {
			t.Errorf("List omits an instance whose tags may not be read, and returns no error")
		}
	}
	if in, err := t.restart().Create(t.Context(), t.createRequest(s)); err == nil && in.ProviderID != s.providerID {
		t.Errorf("Create creates %s, while the tags of the machine's instance %s may not be read", in.ProviderID,
			s.providerID)
	}
	end()
	t.checkExactlyOne(s)
	end = t.inject(Fault{Kind: PartlyUnreadable})
	if result, err := t.restart().Delete(t.Context(), t.deleteByTags(s)); err == nil && result.Gone {
		t.Errorf("Delete by tags of an instance whose tags may not be read reports Gone")
	}
	end()
	t.delete(t.driver, t.deleteByTags(s))
	t.awaitGone(s)
}

func hugeAnswers(t *trial) {
	before := t.resourcesNow()
	s := t.subject()
	t.launch(s)
	calls := t.calls(t.Class, s)
	end := t.inject(Fault{Kind: HugeAnswers})
	for _, call := range calls {
		err := call.do(t.Context())
		if err == nil {
			t.Errorf("%s succeeds with an answer of hundreds of megabytes: the driver reads answers of any length", call.name)
		} else if code := provider.CodeOf(err); !code.Ambiguous() {
			t.Errorf("%s with an answer of hundreds of megabytes: %v; the code %s must leave open whether the call took effect",
				call.name, err, code)
		}
	}
	end()
	// The Deletes and the Create may have taken effect.
	t.delete(t.driver, t.deleteByID(s))
	for _, created := range t.subjects {
		if created != s {
			t.deleteUntilNothing(created, before, time.Now())
		}
	}
}

func othersWithOurName(t *trial) {
	uid := string(newUID())
	for name, tags := range map[string]func(*subject) map[string]string{
		"no tags": func(*subject) map[string]string { return nil },
		"only the tag of the machine's name": func(s *subject) map[string]string {
			return map[string]string{provider.TagMachine: s.Namespace + "/" + s.Name}
		},
		"another machine's UID": func(s *subject) map[string]string {
			return map[string]string{provider.TagCluster: s.cluster, provider.TagMachineUID: uid}
		},
		"another cluster's tag": func(s *subject) map[string]string {
			return map[string]string{provider.TagCluster: t.otherCluster(), provider.TagMachineUID: string(s.UID)}
		},
	} {
		s := t.subject()
		in := *t.launch(s)
		t.delete(t.driver, t.deleteByID(s))
		t.awaitGone(s)
		s.providerID, s.scope = "", "" // If the ID is derived from the name, it may now identify the other instance.
		before := t.resourcesNow()
		carried := tags(s)
		id, remove, err := t.Cloud.LaunchNamed(t.Context(), in, carried)
		untagged := t.awaitLaunched(s, id, remove, err)
		with := t.resourcesNow()

		for _, d := range []provider.Driver{t.driver, t.restart()} {
			created, err := d.Create(t.Context(), t.createRequest(s))
			if err != nil {
				continue // The name may be taken, or the token used.
			}
			if created.ProviderID == id {
				t.Errorf("Create returns an instance of another owner with the same name and %s", name)
			}
			s.providerID, s.scope = created.ProviderID, created.Scope
			t.checkExactlyOne(s)
		}
		if found, err := t.driver.Get(t.Context(), t.byTags(s)); err == nil && found.ProviderID == id {
			t.Errorf("Get by tags returns an instance of another owner with the same name and %s", name)
		}
		if all, _ := t.list(s.cluster); carried[provider.TagCluster] != s.cluster {
			for _, listed := range all {
				if listed.ProviderID == id {
					t.Errorf("List returns an instance of another owner with the same name and %s", name)
				}
			}
		}
		_, err = t.driver.Delete(t.Context(), t.deleteByID(untagged))
		// The driver cannot distinguish a missing tag from a tag that is not visible yet.
		t.wantCode(err, "Delete of an instance of another owner with the same name and "+name, provider.FailedPrecondition,
			provider.Aborted)
		t.delete(t.driver, t.deleteByTags(s))
		after, err := t.driver.Get(t.Context(), t.byID(untagged))
		if err != nil {
			t.Errorf("an instance of another owner with the same name and %s must still exist after Delete, but Get returns: %v",
				name, err)
		} else if after.State == provider.StateTerminating || after.State == provider.StateStopped {
			t.Errorf("an instance of another owner with the same name and %s is in state %s after Delete, which "+
				"must not change it",
				name, after.State)
		}
		now := t.resourcesNow()
		for resource := range with {
			if !before[resource] && !now[resource] && s.providerID == "" {
				t.Errorf("Delete removed %s of an instance of another owner with the same name and %s", resource, name)
			}
		}
	}
}
