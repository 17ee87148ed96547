package conformance

import (
	"fmt"

	"machinist.dev/machinist/pkg/provider"
)

// acceptedCases returns the cases for clouds that accept a call, but later carry it out differently or only in part.
func acceptedCases() []testCase {
	return []testCase{
		{name: "LateLackOfCapacity",
			rule: "An instance that the cloud accepted and that failed for lack of capacity is Failed with the StateCode " +
				"ResourceExhausted, and can be deleted.",
			needs: []requirement{injecting(GivesUp)}, test: lateLackOfCapacity},
		{name: "FailedOperation",
			rule:  "A running instance does not become Failed if an operation on the instance fails.",
			needs: []requirement{injecting(OperationFails)}, test: failedOperation},
		{name: "FiltersIgnored",
			rule: "If searches return everything in the account, Get, Create, List and Delete find the machine's own " +
				"instance and no other.",
			needs: []requirement{injecting(FiltersIgnored), needsLaunch}, test: filtersIgnored},
		{name: "UntaggedParts",
			rule: "If a Create is interrupted at any call while its parts have no tags yet, Delete by tags deletes the " +
				"parts.",
			needs: []requirement{injecting(UntaggedParts), injecting(Unavailable), needsResources}, test: untaggedParts},
		{name: "PartsInUse",
			rule: "While the cloud refuses to delete the parts of an instance that was just deleted, Delete does not report " +
				"Gone. Later it deletes them.",
			needs: []requirement{injecting(PartsInUse), needsResources}, test: partsInUse},
		{name: "PartsReserved",
			rule: "After a refused Create that left its parts reserved, the next Create creates the instance, and Delete " +
				"leaves nothing behind.",
			needs: []requirement{injecting(PartsReserved), needsResources}, test: partsReserved},
	}
}

func lateLackOfCapacity(t *trial) {
	before := map[string]bool(nil)
	if t.Cloud.Resources != nil {
		before = t.resourcesNow()
	}
	s := t.subject()
	end := t.inject(Fault{Kind: GivesUp})
	in, err := t.driver.Create(t.Context(), t.createRequest(s))
	if err != nil {
		// The driver may have waited until the instance failed.
		t.wantCode(err, "Create of an instance for which the cloud has no capacity", provider.ResourceExhausted)
	} else {
		s.providerID, s.scope = in.ProviderID, in.Scope
		t.await("Get shows that the instance failed for lack of capacity", func() (bool, string) {
			in, err := t.driver.Get(t.Context(), t.byID(s))
			if provider.IsNotFound(err) {
				return false, "Get does not find it"
			}
			t.must(err, "Get of an instance that failed for lack of capacity")
			return in.State == provider.StateFailed && in.StateCode == provider.ResourceExhausted,
				fmt.Sprintf("its State is %q with the StateCode %q", in.State, in.StateCode)
		})
	}
	end()
	t.delete(t.restart(), t.deleteByID(s))
	if before != nil {
		t.checkNothingLeft(before, "Delete of a failed instance reports Gone and")
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
			t.Errorf("Get by %s returns the state %s for a running instance on which an operation failed", how, in.State)
		}
	}
	for _, in := range t.listed(s) {
		if in.State == provider.StateFailed {
			t.Errorf("List returns the state %s for a running instance on which an operation failed", in.State)
		}
	}
	t.delete(t.driver, t.deleteByID(s))
	end()
	t.awaitGone(s)
}

func filtersIgnored(t *trial) {
	own, other, others := t.subject(), t.subjectOf(t.otherCluster()), t.subject()
	untagged := t.launchUntagged(t.subject(), nil)
	t.launch(other)
	t.launch(others)
	end := t.inject(Fault{Kind: FiltersIgnored})
	if in, err := t.driver.Get(t.Context(), t.byTags(own)); !provider.IsNotFound(err) {
		t.Errorf("Get by tags for a machine without an instance, while the cloud ignores the filters of searches: %v, error %v; "+
			"want NotFound", in, err)
	}
	t.delete(t.driver, t.deleteByTags(own))
	t.launch(own)
	t.checkExactlyOne(own)
	for _, s := range []*subject{other, others} {
		if s.providerID == own.providerID {
			t.Errorf("Create returns %s, which belongs to another machine", s.providerID)
		}
		t.checkExactlyOne(s)
	}
	for _, cluster := range []string{t.ClusterID, t.otherCluster()} {
		all, _ := t.list(cluster)
		for _, in := range all {
			if in.ProviderID == untagged.providerID || in.ClusterID != cluster {
				t.Errorf("List of cluster %q returns %s, which does not belong to the cluster", cluster, in.ProviderID)
			}
		}
	}
	t.delete(t.driver, t.deleteByTags(own))
	end()
	t.awaitGone(own)
	t.checkExactlyOne(other)
	t.checkExactlyOne(others)
}

func untaggedParts(t *trial) {
	end := t.inject(Fault{Kind: UntaggedParts})
	defer end()
	for calls := range maxCloudCalls {
		s := t.subject()
		before := t.resourcesNow()
		completed := t.createInterrupted(s, calls)
		t.delete(t.restart(), t.deleteByTags(s))
		t.checkNothingLeft(before, "Create failed at call %d to the cloud; then Delete by tags reports Gone and",
			calls+1)
		if completed {
			return
		}
	}
	t.fatalf("Create does not complete within %d calls to the cloud", maxCloudCalls)
}

func partsInUse(t *trial) {
	for name, request := range t.deleteRequests() {
		before := t.resourcesNow()
		s := t.subject()
		t.launch(s)
		t.awaitRunning(s)
		end := t.inject(Fault{Kind: PartsInUse, Duration: t.lag()})
		t.delete(t.restart(), request(s))
		t.checkNothingLeft(before, "%s, while parts cannot be deleted yet, reports Gone and", name)
		end()
		t.awaitGone(s)
	}
}

func partsReserved(t *trial) {
	before := t.resourcesNow()
	for _, again := range []bool{true, false} {
		s := t.subject()
		end := t.inject(Fault{Kind: PartsReserved})
		_, err := t.driver.Create(t.Context(), t.createRequest(s))
		t.wantCode(err, "Create without quota", provider.ResourceExhausted)
		end()
		if again {
			t.retryCreate(t.restart(), s, "after the quota is free again")
			t.checkExactlyOne(s)
		}
		t.delete(t.restart(), t.deleteByTags(s))
		t.checkNothingLeft(before, "Create fails and its parts stay reserved; then Delete by tags reports Gone and")
	}
}
