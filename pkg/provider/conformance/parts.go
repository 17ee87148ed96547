package conformance

import "machinist.dev/machinist/pkg/provider"

func partCases() []testCase {
	return []testCase{
		{name: "PartsRemain",
			rule: "Where disks, interfaces or addresses stay when their instance goes, Delete removes them before it reports Gone.", needs: []need{injecting(PartsRemain), needsResources}, test: partsRemain},
		{name: "PartsGoneFirst",
			rule:  "An instance whose disks, interfaces or addresses somebody has removed is found and deleted.",
			needs: []need{injecting(PartsGoneFirst)}, test: partsGoneFirst},
		{name: "FoundIsTrue",
			rule: "Delete says Found with Gone where it found and removed the instance within the call, and never where there was none.", test: foundIsTrue},
	}
}

// deletions are the ways to delete an instance: by provider ID, by tags, and by provider ID and scope when the class
// is gone.
func (t *trial) deletions() map[string]func(*subject) provider.DeleteRequest {
	return map[string]func(*subject) provider.DeleteRequest{
		"Delete by provider ID": t.deleteByID,
		"Delete by tags":        t.deleteByTags,
		"Delete without the class": func(s *subject) provider.DeleteRequest {
			req := t.deleteByID(s)
			req.Class.Spec = nil
			return req
		},
	}
}

func partsRemain(t *trial) {
	for name, request := range t.deletions() {
		before := t.resourcesNow()
		s := t.subject()
		t.launch(s)
		t.awaitRunning(s)
		end := t.inject(Fault{Kind: PartsRemain})
		t.delete(t.restart(), request(s))
		t.leavesNothing(before, "%s of an instance whose parts stay reports Gone and", name)
		end()
		t.awaitGone(s)
	}
}

func partsGoneFirst(t *trial) {
	for name, request := range t.deletions() {
		before := t.resourcesNow()
		s := t.subject()
		t.launch(s)
		t.awaitRunning(s)
		with := t.resourcesNow()
		end := t.inject(Fault{Kind: PartsGoneFirst})
		if t.Cloud.Resources != nil && len(t.resourcesNow()) == len(with) {
			t.fatalf("the fault %s removes nothing that Cloud.Resources shows: it proves nothing", PartsGoneFirst)
		}
		t.untouched(s, "the removal of its parts")
		t.exactlyOne(s)
		t.delete(t.restart(), request(s))
		t.leavesNothing(before, "%s of an instance whose parts were gone first reports Gone and", name)
		end()
		t.awaitGone(s)
	}
}

func foundIsTrue(t *trial) {
	before := t.resourcesNow()
	s, never := t.subject(), t.subject()
	t.launch(s)
	result, err := t.driver.Delete(t.Context(), t.deleteByID(s))
	switch {
	case provider.CodeOf(err) == provider.Aborted:
		// Nothing is reported.
	case err != nil:
		t.must(err, "Delete")
	case result.Gone && !result.Found:
		t.Errorf("the first Delete of an instance that Get shows reports Gone and not Found: it removed the instance within the call, or did not look")
	case result.Gone:
		t.leavesNothing(before, "Delete reports Gone and Found and")
	}
	t.delete(t.driver, t.deleteByID(s))
	t.awaitGone(s)
	for name, req := range map[string]provider.DeleteRequest{
		"by provider ID of what is gone": t.deleteByID(s), "by tags of what is gone": t.deleteByTags(s),
		"by tags of what never was": t.deleteByTags(never),
	} {
		result, err := t.restart().Delete(t.Context(), req)
		if err != nil || !result.Gone || result.Found {
			t.Errorf("Delete %s: Gone %v, Found %v, error %v; want Gone and not Found", name, result.Gone, result.Found, err)
		}
	}
}
