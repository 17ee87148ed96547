package conformance

import (
	"fmt"
	"slices"

	"machinist.dev/machinist/pkg/provider"
)

func updateCases() []testCase {
	return []testCase{
		{name: "UpdateToTheSame",
			rule: "If the instance matches the specification, Update changes nothing and answers Done, or NeedsReplacement with a reason.",
			test: updateToTheSame},
		{name: "UpdateToAnother",
			rule: "If the providerSpec differs, repeated Update calls end with Done, Refused, ByAgent or NeedsReplacement. " +
				"If Update answers NeedsDrain, the calls after the drain end with one of these outcomes.",
			needs: []requirement{needsOtherSpec}, test: updateToAnother},
		{name: "UpdateRefusesOthers",
			rule: "Update of an instance of another owner fails with FailedPrecondition. Update of an instance that does not " +
				"exist fails with NotFound.",
			test: updateRefusesOthers},
	}
}

var outcomes = []provider.UpdateOutcome{
	provider.UpdateDone, provider.UpdateInProgress, provider.UpdateNeedsDrain, provider.UpdateNeedsReplacement,
	provider.UpdateByAgent,
	provider.UpdateRefused,
}

// updateOnce repeats Update while the update is in progress, and returns the outcome.
func (t *trial) updateOnce(req provider.UpdateRequest, s *subject, attempted string) provider.UpdateOutcome {
	t.Helper()
	var result provider.UpdateResult
	t.await(attempted+" reaches an outcome", func() (bool, string) {
		var err error
		result, err = t.driver.Update(t.Context(), req)
		if provider.CodeOf(err) == provider.Aborted {
			return false, err.Error() // Machinist retries.
		}
		t.must(err, "%s", attempted)
		if in := result.Instance; in != nil && in.ProviderID != s.providerID {
			t.fatalf("%s returns instance %q, want %q", attempted, in.ProviderID, s.providerID)
		}
		return result.Outcome != provider.UpdateInProgress, "it is in progress"
	})
	switch {
	case !slices.Contains(outcomes, result.Outcome):
		t.fatalf("%s has the outcome %q, which does not exist", attempted, result.Outcome)
	case result.Reason == "" && (result.Outcome == provider.UpdateNeedsReplacement ||
		result.Outcome == provider.UpdateRefused):
		t.Errorf("%s has the outcome %s without a reason", attempted, result.Outcome)
	}
	return result.Outcome
}

func updateToTheSame(t *trial) {
	s := t.subject()
	t.launch(s)
	t.awaitRunning(s)
	before := t.resourcesNow()
	req := t.updateRequest(s)
	for _, req.NodeDrained = range []bool{false, true} {
		attempted := fmt.Sprintf("Update to the current specification with Drained=%v", req.NodeDrained)
		if outcome := t.updateOnce(req, s, attempted); outcome != provider.UpdateDone &&
			outcome != provider.UpdateNeedsReplacement {
			t.Errorf("%s answers %s, want Done or NeedsReplacement", attempted, outcome)
		}
	}
	t.checkUnchanged(s, "Update to the current specification")
	t.checkExactlyOne(s)
	if more := t.newResources(before); len(more) > 0 {
		t.Errorf("Update with an unchanged specification creates the resources %v", more)
	}
}

func updateToAnother(t *trial) {
	s := t.subject()
	t.launch(s)
	t.awaitRunning(s)
	req := t.updateRequest(s)
	req.Class.Spec = t.OtherSpec
	outcome := t.updateOnce(req, s, "Update")
	if outcome == provider.UpdateNeedsDrain {
		req.NodeDrained = true
		if outcome = t.updateOnce(req, s, "Update after the drain"); outcome == provider.UpdateNeedsDrain {
			t.Errorf("Update asks for a drain after the node was drained")
		}
	}
	if outcome == provider.UpdateDone {
		req.NodeDrained = false
		t.await("a repeated Update answers Done again", func() (bool, string) {
			again := t.updateOnce(req, s, "a repeated Update after the outcome Done")
			return again == provider.UpdateDone, "it answers " + string(again)
		})
	}
	t.checkUnchanged(s, "Update")
	t.checkExactlyOne(s)
}

func updateRefusesOthers(t *trial) {
	s := t.subject()
	t.launch(s)
	t.awaitRunning(s)
	for who, other := range t.foreignOwners(s) {
		_, err := t.driver.Update(t.Context(), t.updateRequest(other))
		other.providerID = "" // Do not delete it when the case ends.
		t.wantCode(err, "Update by "+who, provider.FailedPrecondition)
		t.checkUnchanged(s, "Update by "+who)
	}
	t.delete(t.driver, t.deleteByID(s))
	t.awaitGone(s)
	_, err := t.driver.Update(t.Context(), t.updateRequest(s))
	t.wantCode(err, "Update of a deleted instance", provider.NotFound)
}
