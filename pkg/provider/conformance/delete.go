package conformance

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

func deleteCases() []testCase {
	return []testCase{
		{name: "DeleteIsIdempotent", rule: "Delete of what is gone, or never was, is Gone, also in a new process.",
			test: deleteIsIdempotent},
		{name: "DeleteByTags",
			rule: "Delete without a provider ID removes the instance with the tags of cluster and machine.", test: deleteByTags},
		{name: "DeleteAtOnce", rule: "An instance can be deleted the moment that Create has returned it.",
			test: deleteAtOnce},
		{name: "DeleteDuringCreate", rule: "Delete while Create is under way, and again after it, leaves nothing.",
			test: deleteDuringCreate},
		{name: "DeleteLeavesNothing", rule: "When Delete reports Gone, no disk, network interface or address is left.",
			needs: []need{needsResources}, test: deleteLeavesNothing},
		{name: "DeleteRefusesOthers",
			rule: "Delete of another machine's or cluster's instance is FailedPrecondition and touches nothing.",
			test: deleteRefusesOthers},
		{name: "UntaggedIsLeftAlone",
			rule:  "An instance that lacks a tag is never deleted, and not listed without the cluster's.",
			needs: []need{needsLaunch}, test: untaggedIsLeftAlone},
	}
}

func deleteIsIdempotent(t *trial) {
	s := t.subject()
	t.launch(s)
	d := t.restart()
	for _, by := range []provider.Driver{t.driver, d, d} {
		t.delete(by, t.deleteByID(s)) // Reads that lag may show for a while what is gone.
	}
	t.awaitGone(s)
	never := t.subject()
	for name, req := range map[string]provider.DeleteRequest{
		"by provider ID of what is gone": t.deleteByID(s), "by tags of what is gone": t.deleteByTags(s),
		"by tags of what never was": t.deleteByTags(never),
	} {
		for range 2 {
			result, err := d.Delete(t.Context(), req)
			if err != nil || !result.Gone {
				t.Errorf("Delete %s: Gone %v, error %v; want Gone", name, result.Gone, err)
			}
		}
	}
}

func deleteByTags(t *trial) {
	s, remaining := t.subject(), t.subject()
	t.launch(s)
	t.launch(remaining)
	t.delete(t.restart(), t.deleteByTags(s))
	t.awaitGone(s)
	t.untouched(remaining, "Delete of another machine by tags")
}

func deleteAtOnce(t *trial) {
	before := t.resourcesNow()
	s := t.subject()
	t.create(s)
	t.delete(t.driver, t.deleteByID(s))
	if left := t.beyond(before); len(left) > 0 {
		t.Errorf("Delete at once reports Gone and leaves %v", left)
	}
	t.awaitGone(s)
}

func deleteDuringCreate(t *trial) {
	before := t.resourcesNow()
	s := t.subject()
	var both sync.WaitGroup
	var createErr, deleteErr error
	both.Go(func() {
		in, err := t.driver.Create(t.Context(), t.request(s))
		if createErr = err; err == nil {
			s.providerID, s.scope = in.ProviderID, in.Scope
		}
	})
	other := t.restart()
	req := t.deleteByTags(s)
	both.Go(func() { _, deleteErr = other.Delete(t.Context(), req) })
	both.Wait()
	if deleteErr != nil {
		t.wantCode(deleteErr, "Delete by tags while Create is under way", provider.Aborted)
	}
	if createErr != nil && provider.CodeOf(createErr).Terminal() {
		t.Errorf("Create while Delete is under way: %v; want an error that is retried", createErr)
	}
	// Machinist goes on until there is nothing, now that it may know the provider ID.
	t.deleteUntilNothing(s, before, time.Now())
}

// deleteUntilNothing deletes until nothing is left of the subject. What a Create that failed has done may show as
// late as CreateSettle after its end.
func (t *trial) deleteUntilNothing(s *subject, before map[string]bool, createEnded time.Time) {
	t.Helper()
	left := provider.CreateSettle(t.driver.driver) - time.Since(createEnded)
	if s.providerID != "" {
		left = 0
	}
	t.awaitFor(max(left, 0), "nothing is left when Delete has reported Gone", func() (bool, string) {
		t.delete(t.driver, t.deleteByID(s))
		more := t.beyond(before)
		return len(more) == 0, "there are " + strings.Join(more, ", ")
	})
	t.awaitGone(s)
}

func deleteLeavesNothing(t *trial) {
	before := t.resourcesNow()
	s, pending := t.subject(), t.subject()
	t.launch(s)
	t.awaitRunning(s)
	if len(t.beyond(before)) == 0 {
		t.fatalf("Cloud.Resources shows nothing of a running instance: it proves nothing")
	}
	t.delete(t.driver, t.deleteByID(s))
	if left := t.beyond(before); len(left) > 0 {
		t.Errorf("Delete of a running instance reports Gone and leaves %v", left)
	}
	t.launch(pending)
	t.delete(t.restart(), t.deleteByTags(pending))
	if left := t.beyond(before); len(left) > 0 {
		t.Errorf("Delete by tags reports Gone and leaves %v", left)
	}
}

// untouched holds the driver to have left the subject's instance as it was.
func (t *trial) untouched(s *subject, after string) {
	t.Helper()
	in, err := t.driver.Get(t.Context(), t.byID(s))
	if err != nil {
		t.Errorf("after %s, Get of %s: %v; it must not be touched", after, s.providerID, err)
		return
	}
	if in.State == provider.StateTerminating || in.State == provider.StateStopped {
		t.Errorf("after %s, %s is in state %s; it must not be touched", after, s.providerID, in.State)
	}
	t.carries(in, s, "after "+after)
}

// others are requests about the subject's instance by those whose it is not: the name of each, and who asks.
func (t *trial) others(s *subject) map[string]*subject {
	machine, cluster := t.subject(), t.subjectOf(t.otherCluster())
	sameUID := *s
	sameUID.cluster = t.otherCluster()
	all := map[string]*subject{"another machine": machine, "another machine of another cluster": cluster,
		"the same machine of another cluster": &sameUID}
	for _, other := range all {
		other.providerID, other.scope = s.providerID, s.scope
	}
	return all
}

func deleteRefusesOthers(t *trial) {
	s := t.subject()
	t.launch(s)
	for who, other := range t.others(s) {
		result, err := t.driver.Delete(t.Context(), t.deleteByID(other))
		other.providerID = "" // Not to be deleted when the case ends.
		if t.wantCode(err, "Delete by "+who, provider.FailedPrecondition) && result.Gone {
			t.Errorf("Delete by %s reports Gone beside its error", who)
		}
		t.untouched(s, "Delete by "+who)
	}
	for name, change := range map[string]func(*provider.DeleteRequest){
		"neither provider ID nor UID": func(req *provider.DeleteRequest) { req.Machine.UID = "" },
		"no cluster id":               func(req *provider.DeleteRequest) { req.ClusterID = "" },
	} {
		req := t.deleteByTags(s)
		change(&req)
		_, _ = t.driver.Delete(t.Context(), req) // It may say what it likes.
		t.untouched(s, "Delete with "+name)
	}
}

func untaggedIsLeftAlone(t *trial) {
	s := t.subject()
	made := map[string]*subject{}
	for name, tags := range map[string]map[string]string{
		"no tags":             nil,
		"the cluster's only":  {provider.TagCluster: s.cluster},
		"the machine's only":  {provider.TagMachineUID: string(s.UID)},
		"the name's tag only": {provider.TagMachine: s.Namespace + "/" + s.Name},
	} {
		untagged := t.untagged(s, tags)
		made[name] = untagged
		_, err := t.driver.Delete(t.Context(), t.deleteByID(untagged))
		t.wantCode(err, "Delete of an instance with "+name, provider.FailedPrecondition)
		if all, _ := t.list(s.cluster); tags[provider.TagCluster] == "" && slices.Contains(ids(all), untagged.providerID) {
			t.Errorf("List has an instance with %s", name)
		}
	}
	result, err := t.driver.Delete(t.Context(), t.deleteByTags(s))
	if err != nil || !result.Gone {
		t.Errorf("Delete by tags of a machine without an instance: Gone %v, error %v; want Gone", result.Gone, err)
	}
	for name, untagged := range made {
		in, err := t.driver.Get(t.Context(), t.byID(untagged))
		if err != nil {
			t.Errorf("Get of an instance with %s after Deletes that must not touch it: %v", name, err)
		} else if in.State == provider.StateTerminating || in.State == provider.StateStopped {
			t.Errorf("an instance with %s is in state %s after Deletes that must not touch it", name, in.State)
		}
	}
}

// untagged makes an instance past the driver and returns it as if it were the subject's. It is visible.
func (t *trial) untagged(s *subject, tags map[string]string) *subject {
	t.Helper()
	id, remove, err := t.Cloud.Launch(t.Context(), tags)
	return t.visible(s, id, remove, err)
}

// visible waits until an instance that was launched past the driver shows, and returns it as if it were the subject's.
func (t *trial) visible(s *subject, id string, remove func(context.Context) error, err error) *subject {
	t.Helper()
	t.must(err, "launch an instance past the driver")
	t.ends = append(t.ends, func() {
		if err := remove(t.Context()); err != nil {
			t.Logf("clean up: remove %s: %v", id, err)
		}
	})
	untagged := *s
	untagged.providerID = id
	t.await("Get by provider ID finds the instance that was launched past the driver", func() (bool, string) {
		in, err := t.driver.Get(t.Context(), t.byID(&untagged))
		if provider.IsNotFound(err) {
			return false, "NotFound"
		}
		t.must(err, "Get of what was launched past the driver")
		untagged.scope = in.Scope
		return true, ""
	})
	return &untagged
}
