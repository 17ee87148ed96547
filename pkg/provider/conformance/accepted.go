package conformance

import (
	"fmt"

	"machinist.dev/machinist/pkg/provider"
)

// acceptedCases are about clouds that accept a call and do something else later, or only a part of it.
func acceptedCases() []testCase {
	return []testCase{
		{name: "LateLackOfCapacity",
			rule: "An instance that was accepted and failed for lack of capacity is Failed with the StateCode " +
				"ResourceExhausted, and can be deleted.",
			needs: []need{injecting(GivesUp)}, test: lateLackOfCapacity},
		{name: "FailedOperation",
			rule:  "An instance that runs is not Failed because an operation on it failed.",
			needs: []need{injecting(OperationFails)}, test: failedOperation},
		{name: "FiltersIgnored",
			rule: "Where searches return everything in the account, Get, Create, List and Delete find the machine's own " +
				"instance and no other.",
			needs: []need{injecting(FiltersIgnored), needsLaunch}, test: filtersIgnored},
		{name: "UntaggedParts",
			rule:  "Wherever a Create is cut short while the tags of its parts are missing, Delete by tags removes the parts.",
			needs: []need{injecting(UntaggedParts), injecting(Unavailable), needsResources}, test: untaggedParts},
		{name: "PartsInUse",
			rule: "While the deletion of parts is refused because their instance has just gone, Delete does not report Gone; " +
				"then it removes them.",
			needs: []need{injecting(PartsInUse), needsResources}, test: partsInUse},
		{name: "PartsReserved",
			rule: "After a Create that was refused and left its parts reserved, Create again makes the instance, and Delete " +
				"leaves nothing.",
			needs: []need{injecting(PartsReserved), needsResources}, test: partsReserved},
	}
}

func lateLackOfCapacity(t *trial) {
	before := map[string]bool(nil)
	if t.Cloud.Resources != nil {
		before = t.resourcesNow()
	}
	s := t.subject()
	end := t.inject(Fault{Kind: GivesUp})
	in, err := t.driver.Create(t.Context(), t.request(s))
	if err != nil {
		// A driver may have waited for it.
		t.wantCode(err, "Create of an instance that the cloud has no capacity for", provider.ResourceExhausted)
	} else {
		s.providerID, s.scope = in.ProviderID, in.Scope
		t.await("Get shows that the instance failed for lack of capacity", func() (bool, string) {
			in, err := t.driver.Get(t.Context(), t.byID(s))
			if provider.IsNotFound(err) {
				return false, "Get does not find it"
			}
			t.must(err, "Get of an instance that the cloud gives up on")
			return in.State == provider.StateFailed && in.StateCode == provider.ResourceExhausted,
				fmt.Sprintf("its State is %q with the StateCode %q", in.State, in.StateCode)
		})
	}
	end()
	t.delete(t.restart(), t.deleteByID(s))
	if before != nil {
		t.leavesNothing(before, "Delete of an instance that failed reports Gone and")
	}
	t.awaitGone(s)
}

func failedOperation(t *trial) {
	s := t.subject()
	t.launch(s)
	t.awaitRunning(s)
	end := t.inject(Fault{Kind: OperationFails})
	for how, req := range map[string]provider.GetRequest{"provider ID": t.byID(s), "tags": t.byTags(s)} {
		in, err := t.restart().Get(t.Context(), req)
		t.must(err, "Get by %s of an instance on which an operation failed", how)
		if in.State == provider.StateFailed {
			t.Errorf("Get by %s of an instance that runs, and on which an operation failed, says %s", how, in.State)
		}
	}
	for _, in := range t.listed(s) {
		if in.State == provider.StateFailed {
			t.Errorf("List has an instance that runs, and on which an operation failed, as %s", in.State)
		}
	}
	t.delete(t.driver, t.deleteByID(s))
	end()
	t.awaitGone(s)
}

func filtersIgnored(t *trial) {
	ours, other, others := t.subject(), t.subjectOf(t.otherCluster()), t.subject()
	untagged := t.untagged(t.subject(), nil)
	t.launch(other)
	t.launch(others)
	end := t.inject(Fault{Kind: FiltersIgnored})
	if in, err := t.driver.Get(t.Context(), t.byTags(ours)); !provider.IsNotFound(err) {
		t.Errorf("Get by tags of a machine without an instance, while searches return everything: %v, error %v; "+
			"want NotFound", in, err)
	}
	t.delete(t.driver, t.deleteByTags(ours))
	t.launch(ours)
	t.exactlyOne(ours)
	for _, s := range []*subject{other, others} {
		if s.providerID == ours.providerID {
			t.Errorf("Create returns %s, which is another machine's", s.providerID)
		}
		t.exactlyOne(s)
	}
	for _, cluster := range []string{t.ClusterID, t.otherCluster()} {
		all, _ := t.list(cluster)
		for _, in := range all {
			if in.ProviderID == untagged.providerID || in.ClusterID != cluster {
				t.Errorf("List of cluster %q has %s, which is not the cluster's", cluster, in.ProviderID)
			}
		}
	}
	t.delete(t.driver, t.deleteByTags(ours))
	end()
	t.awaitGone(ours)
	t.exactlyOne(other)
	t.exactlyOne(others)
}

func untaggedParts(t *trial) {
	end := t.inject(Fault{Kind: UntaggedParts})
	defer end()
	for calls := range mostCalls {
		s := t.subject()
		before := t.resourcesNow()
		whole := t.cut(s, calls)
		t.delete(t.restart(), t.deleteByTags(s))
		t.leavesNothing(before, "Delete by tags after a Create that the cloud failed at its call %d reports Gone and",
			calls+1)
		if whole {
			return
		}
	}
	t.fatalf("Create does not get through in %d calls to the cloud", mostCalls)
}

func partsInUse(t *trial) {
	for name, request := range t.deletions() {
		before := t.resourcesNow()
		s := t.subject()
		t.launch(s)
		t.awaitRunning(s)
		end := t.inject(Fault{Kind: PartsInUse, For: t.lag()})
		t.delete(t.restart(), request(s))
		t.leavesNothing(before, "%s, while parts cannot be deleted yet, reports Gone and", name)
		end()
		t.awaitGone(s)
	}
}

func partsReserved(t *trial) {
	before := t.resourcesNow()
	for _, again := range []bool{true, false} {
		s := t.subject()
		end := t.inject(Fault{Kind: PartsReserved})
		_, err := t.driver.Create(t.Context(), t.request(s))
		t.wantCode(err, "Create without quota", provider.ResourceExhausted)
		end()
		if again {
			t.createRetried(t.restart(), s, "once there is quota")
			t.exactlyOne(s)
		}
		t.delete(t.restart(), t.deleteByTags(s))
		t.leavesNothing(before, "Delete by tags after a Create that left its parts reserved reports Gone and")
	}
}
