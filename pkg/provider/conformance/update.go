package conformance

import (
	"fmt"
	"slices"

	"machinist.dev/machinist/pkg/provider"
)

func updateCases() []testCase {
	return []testCase{
		{name: "UpdateToTheSame",
			rule: "Update to what the instance is answers Done, or NeedsReplacement with a reason, and changes nothing.",
			test: updateToTheSame},
		{name: "UpdateToAnother",
			rule: "Update to another providerSpec comes to an outcome: done, refused, left to an agent on the node, or to be replaced, with a drain if it asks for one.", needs: []need{needsOtherSpec}, test: updateToAnother},
		{name: "UpdateRefusesOthers", rule: "Update of another's instance is FailedPrecondition, of none NotFound.",
			test: updateRefusesOthers},
	}
}

var outcomes = []provider.UpdateOutcome{
	provider.UpdateDone, provider.UpdateInProgress, provider.UpdateNeedsDrain, provider.UpdateNeedsReplacement,
	provider.UpdateByAgent,
	provider.UpdateRefused,
}

// updateOnce calls Update until it is no longer in progress, and returns the outcome.
func (t *trial) updateOnce(req provider.UpdateRequest, s *subject, attempted string) provider.UpdateOutcome {
	t.Helper()
	var result provider.UpdateResult
	t.await(attempted+" comes to an outcome", func() (bool, string) {
		var err error
		result, err = t.driver.Update(t.Context(), req)
		if provider.CodeOf(err) == provider.Aborted {
			return false, err.Error() // Machinist tries again.
		}
		t.must(err, "%s", attempted)
		if in := result.Instance; in != nil && in.ProviderID != s.providerID {
			t.fatalf("%s tells of instance %q, want %q", attempted, in.ProviderID, s.providerID)
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
	req := t.update(s)
	for _, req.Drained = range []bool{false, true} {
		attempted := fmt.Sprintf("Update to the same, drained %v,", req.Drained)
		if outcome := t.updateOnce(req, s, attempted); outcome != provider.UpdateDone &&
			outcome != provider.UpdateNeedsReplacement {
			t.Errorf("%s answers %s, want Done or NeedsReplacement", attempted, outcome)
		}
	}
	t.untouched(s, "Update to the same")
	t.exactlyOne(s)
	if more := t.beyond(before); len(more) > 0 {
		t.Errorf("Update to the same made %v", more)
	}
}

func updateToAnother(t *trial) {
	s := t.subject()
	t.launch(s)
	t.awaitRunning(s)
	req := t.update(s)
	req.Class.Spec = t.OtherSpec
	outcome := t.updateOnce(req, s, "Update")
	if outcome == provider.UpdateNeedsDrain {
		req.Drained = true
		if outcome = t.updateOnce(req, s, "Update after the drain"); outcome == provider.UpdateNeedsDrain {
			t.Errorf("Update asks for the drain that was made")
		}
	}
	if outcome == provider.UpdateDone {
		req.Drained = false
		t.await("Update that was Done answers Done when it is asked again", func() (bool, string) {
			again := t.updateOnce(req, s, "Update that was done")
			return again == provider.UpdateDone, "it answers " + string(again)
		})
	}
	t.untouched(s, "Update")
	t.exactlyOne(s)
}

func updateRefusesOthers(t *trial) {
	s := t.subject()
	t.launch(s)
	t.awaitRunning(s)
	for who, other := range t.others(s) {
		_, err := t.driver.Update(t.Context(), t.update(other))
		other.providerID = "" // Not to be deleted when the case ends.
		t.wantCode(err, "Update by "+who, provider.FailedPrecondition)
		t.untouched(s, "Update by "+who)
	}
	t.delete(t.driver, t.deleteByID(s))
	t.awaitGone(s)
	_, err := t.driver.Update(t.Context(), t.update(s))
	t.wantCode(err, "Update of an instance that is gone", provider.NotFound)
}
