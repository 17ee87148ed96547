package conformance

import (
	"time"

	"machinist.dev/machinist/pkg/provider"
)

func answerCases() []testCase {
	return []testCase{
		{name: "UnsteadyLists",
			rule: "Of a list that repeats entries and changes its order, List leaves out none and has none twice on a page; all other calls go on.", needs: []need{injecting(UnsteadyLists)}, test: unsteadyLists},
		{name: "OtherCase",
			rule:  "An instance whose id or name is spelled in another case keeps its provider ID, is found and is deleted.",
			needs: []need{injecting(OtherCase)}, test: otherCase},
		{name: "StateGoesBack",
			rule:  "An instance whose state goes back is the same one, is not Failed or Stopped, and can be deleted.",
			needs: []need{injecting(StateGoesBack)}, test: stateGoesBack},
		{name: "HugeAnswers",
			rule:  "A call whose answer has hundreds of megabytes fails, with a code that leaves open whether it took effect.",
			needs: []need{injecting(HugeAnswers)}, test: hugeAnswers},
		{name: "OthersWithOurName",
			rule:  "Another's instance with the name of one of ours is never returned, listed or deleted.",
			needs: []need{needsNamed}, test: othersWithOurName},
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
					t.Errorf("List has %s twice on one page", in.ProviderID)
				}
				on[in.ProviderID], seen[in.ProviderID] = true, true
			}
		}
		for _, s := range t.subjects {
			if !seen[s.providerID] {
				t.Errorf("List of a cloud that changes the order of its lists leaves out %s", s.providerID)
			}
		}
	}
	s, remaining := t.subjects[0], t.subjects[1:]
	t.createRetried(t.restart(), s, "while lists repeat entries")
	t.awaitVisible(s)
	t.delete(t.restart(), t.deleteByTags(s))
	t.awaitGone(s)
	for _, other := range remaining {
		t.untouched(other, "Delete of another machine by tags")
	}
}

func otherCase(t *trial) {
	before := t.resourcesNow()
	s, fresh := t.subject(), t.subject()
	t.launch(s)
	t.inject(Fault{Kind: OtherCase})
	t.create(fresh)
	for _, s := range []*subject{s, fresh} {
		t.createRetried(t.restart(), s, "while the cloud spells it in another case")
		t.exactlyOne(s)
	}
	t.delete(t.restart(), t.deleteByID(s))
	t.delete(t.restart(), t.deleteByTags(fresh))
	t.leavesNothing(before, "Delete of instances that the cloud spells in another case")
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
	judge := func(in *provider.Instance, how string) {
		t.Helper()
		if in.State != provider.StatePending && in.State != provider.StateRunning {
			t.Errorf("%s shows %s in state %s: going back to an earlier state is no failure", how, in.ProviderID, in.State)
		}
		if in.ProviderID != s.providerID {
			t.Errorf("%s shows %q, want %q", how, in.ProviderID, s.providerID)
		}
		t.carries(in, s, how)
	}
	back := false
	for range 4 {
		in, err := t.driver.Get(t.Context(), t.byID(s))
		t.must(err, "Get by provider ID")
		judge(in, "Get by provider ID")
		back = back || in.State != provider.StateRunning
		in, err = t.driver.Get(t.Context(), t.byTags(s))
		t.must(err, "Get by tags")
		judge(in, "Get by tags")
		for _, in := range t.listed(s) {
			judge(&in, "List")
		}
	}
	if !back {
		t.Logf("Get by provider ID showed no earlier state: it may not have been tested")
	}
	t.createRetried(t.restart(), s, "while the state goes back")
	t.exactlyOne(s)
	t.deleteAsMachinist(t.driver, t.deleteByID(s), time.Now())
	t.leavesNothing(before, "Delete of an instance whose state goes back")
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
			t.Errorf("%s succeeds with an answer of hundreds of megabytes: it reads answers of any length", call.name)
		} else if code := provider.CodeOf(err); !code.Ambiguous() {
			t.Errorf("%s with an answer of hundreds of megabytes: %v; the code %s says more than it can know",
				call.name, err, code)
		}
	}
	end()
	// Deletes may have taken effect, and Create as well.
	t.delete(t.driver, t.deleteByID(s))
	for _, made := range t.subjects {
		if made != s {
			t.deleteUntilNothing(made, before, time.Now())
		}
	}
}

func othersWithOurName(t *trial) {
	uid := string(newUID())
	for name, tags := range map[string]func(*subject) map[string]string{
		"no tags": func(*subject) map[string]string { return nil },
		"the machine's name in its tag": func(s *subject) map[string]string {
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
		s.providerID, s.scope = "", "" // The name may make it the other's.
		before := t.resourcesNow()
		carried := tags(s)
		id, remove, err := t.Cloud.LaunchNamed(t.Context(), in, carried)
		untagged := t.visible(s, id, remove, err)
		with := t.resourcesNow()

		for _, d := range []provider.Driver{t.driver, t.restart()} {
			made, err := d.Create(t.Context(), t.request(s))
			if err != nil {
				continue // The name may be taken, or the token used.
			}
			if made.ProviderID == id {
				t.Errorf("Create returns another's instance with the name of ours and %s", name)
			}
			s.providerID, s.scope = made.ProviderID, made.Scope
			t.exactlyOne(s)
		}
		if found, err := t.driver.Get(t.Context(), t.byTags(s)); err == nil && found.ProviderID == id {
			t.Errorf("Get by tags returns another's instance with the name of ours and %s", name)
		}
		if all, _ := t.list(s.cluster); carried[provider.TagCluster] != s.cluster {
			for _, listed := range all {
				if listed.ProviderID == id {
					t.Errorf("List has another's instance with the name of ours and %s", name)
				}
			}
		}
		_, err = t.driver.Delete(t.Context(), t.deleteByID(untagged))
		// Tags that are on their way look the same for a while.
		t.wantCode(err, "Delete of another's instance with the name of ours and "+name, provider.FailedPrecondition,
			provider.Aborted)
		t.delete(t.driver, t.deleteByTags(s))
		in2, err := t.driver.Get(t.Context(), t.byID(untagged))
		if err != nil {
			t.Errorf("Get of another's instance with the name of ours and %s, after Deletes that must not touch it: %v", name,
				err)
		} else if in2.State == provider.StateTerminating || in2.State == provider.StateStopped {
			t.Errorf("another's instance with the name of ours and %s is in state %s after Deletes that must not touch it",
				name, in2.State)
		}
		now := t.resourcesNow()
		for resource := range with {
			if !before[resource] && !now[resource] && s.providerID == "" {
				t.Errorf("Delete took %s from another's instance with the name of ours and %s", resource, name)
			}
		}
	}
}
