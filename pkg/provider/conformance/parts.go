package conformance

import "machinist.dev/machinist/pkg/provider"

func partCases() []testCase {
	return []testCase{
		{name: "PartsRemain",
			rule: "If disks, network interfaces or addresses remain after their instance was deleted, Delete deletes them " +
				"before it reports Gone.",
			needs: []requirement{injecting(PartsRemain), needsResources}, test: partsRemain},
		{name: "PartsGoneFirst",
			rule: "An instance whose disks, network interfaces or addresses were already deleted is still found and " +
				"deleted.",
			needs: []requirement{injecting(PartsGoneFirst)}, test: partsGoneFirst},
		{name: "FoundIsTrue",
			rule: "Delete reports Found together with Gone if it found and deleted the instance within the call, and never " +
				"if there was no instance.",
			test: foundIsTrue},
	}
}

// deleteRequests returns the ways to delete an instance: by provider ID, by tags, and without the class by provider
// ID and scope.
func (t *trial) deleteRequests() map[string]func(*subject) provider.DeleteRequest {
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
	for name, request := range t.deleteRequests() {
		before := t.resourcesNow()
		s := t.subject()
		t.launch(s)
		t.awaitRunning(s)
		end := t.inject(Fault{Kind: PartsRemain})
		t.delete(t.restart(), request(s))
		t.checkNothingLeft(before, "%s of an instance whose parts remain reports Gone and", name)
		end()
		t.awaitGone(s)
	}
}

func partsGoneFirst(t *trial) {
	for name, request := range t.deleteRequests() {
		before := t.resourcesNow()
		s := t.subject()
		t.launch(s)
		t.awaitRunning(s)
		with := t.resourcesNow()
		end := t.inject(Fault{Kind: PartsGoneFirst})
		if t.Cloud.Resources != nil && len(t.resourcesNow()) == len(with) {
			t.fatalf("the fault %s removes no resource that Cloud.Resources returns, so this case tests nothing", PartsGoneFirst)
		}
		t.checkUnchanged(s, "the removal of its parts")
		t.checkExactlyOne(s)
		t.delete(t.restart(), request(s))
		t.checkNothingLeft(before, "the parts of the instance were deleted first; then %s reports Gone and", name)
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
	case err != nil:
		t.must(err, "Delete")
	case result.Gone && !result.Found:
		t.Errorf("the first Delete of an instance that Get shows reports Gone without Found: it deleted " +
			"the instance within the call, or did not look for it")
	case result.Gone:
		t.checkNothingLeft(before, "Delete reports Gone and Found and")
	}
	t.delete(t.driver, t.deleteByID(s))
	t.awaitGone(s)
	for name, req := range map[string]provider.DeleteRequest{
		"by provider ID of a deleted instance": t.deleteByID(s), "by tags of a deleted instance": t.deleteByTags(s),
		"by tags of an instance that never existed": t.deleteByTags(never),
	} {
		result, err := t.restart().Delete(t.Context(), req)
		if err != nil || !result.Gone || result.Found {
			t.Errorf("Delete %s: Gone %v, Found %v, error %v; want Gone and not Found", name, result.Gone, result.Found, err)
		}
	}
}
