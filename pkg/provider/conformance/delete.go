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
		{name: "DeleteIsIdempotent",
			rule: "Delete of an instance that was deleted or never existed reports Gone, also in a new process.",
			test: deleteIsIdempotent},
		{name: "DeleteByTags",
			rule: "Delete without a provider ID deletes the instance with the tags of the cluster and the machine.",
			test: deleteByTags},
		{name: "DeleteAtOnce", rule: "An instance can be deleted as soon as Create has returned it.",
			test: deleteAtOnce},
		{name: "DeleteDuringCreate",
			rule: "A Delete during a Create, and another Delete after it, leave nothing behind.",
			test: deleteDuringCreate},
		{name: "DeleteLeavesNothing", rule: "When Delete reports Gone, no disk, network interface or address is left.",
			needs: []requirement{needsResources}, test: deleteLeavesNothing},
		{name: "DeleteRefusesOthers",
			rule: "Delete of an instance of another machine or cluster fails with FailedPrecondition and changes nothing.",
			test: deleteRefusesOthers},
		{name: "UntaggedIsLeftAlone",
			rule:  "An instance that lacks a tag is never deleted. An instance that lacks the cluster's tag is not listed.",
			needs: []requirement{needsLaunch}, test: untaggedIsLeftAlone},
	}
}

func deleteIsIdempotent(t *trial) {
	s := t.subject()
	t.launch(s)
	d := t.restart()
	for _, by := range []provider.Driver{t.driver, d, d} {
		t.delete(by, t.deleteByID(s)) // Reads that lag behind may still show the deleted instance for a while.
	}
	t.awaitGone(s)
	never := t.subject()
	for name, req := range map[string]provider.DeleteRequest{
		"by provider ID of a deleted instance": t.deleteByID(s), "by tags of a deleted instance": t.deleteByTags(s),
		"by tags of an instance that never existed": t.deleteByTags(never),
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
	t.checkUnchanged(remaining, "Delete of another machine by tags")
}

func deleteAtOnce(t *trial) {
	before := t.resourcesNow()
	s := t.subject()
	t.create(s)
	t.delete(t.driver, t.deleteByID(s))
	if left := t.newResources(before); len(left) > 0 {
		t.Errorf("Delete right after Create reports Gone and leaves %v", left)
	}
	t.awaitGone(s)
}

func deleteDuringCreate(t *trial) {
	before := t.resourcesNow()
	s := t.subject()
	var both sync.WaitGroup
	var createErr, deleteErr error
	both.Go(func() {
		in, err := t.driver.Create(t.Context(), t.createRequest(s))
		if createErr = err; err == nil {
			s.providerID, s.scope = in.ProviderID, in.Scope
		}
	})
	other := t.restart()
	req := t.deleteByTags(s)
	both.Go(func() { _, deleteErr = other.Delete(t.Context(), req) })
	both.Wait()
	if deleteErr != nil {
		t.wantCode(deleteErr, "Delete by tags during Create", provider.Aborted)
	}
	if createErr != nil && provider.CodeOf(createErr).Terminal() {
		t.Errorf("Create during Delete: %v; want an error after which Machinist retries", createErr)
	}
	// Like Machinist, the case repeats Delete until nothing is left. If Create returned the instance, the provider ID
	// is now known.
	t.deleteUntilNothing(s, before, time.Now())
}

// deleteUntilNothing calls Delete until no resource of the subject exists. A failed Create may take effect as late as
// CreateSettle after its end.
func (t *trial) deleteUntilNothing(s *subject, before map[string]bool, createEnded time.Time) {
	t.Helper()
	left := provider.CreateSettle(t.driver.driver) - time.Since(createEnded)
	if s.providerID != "" {
		left = 0
	}
	t.awaitFor(max(left, 0), "nothing is left after Delete reported Gone", func() (bool, string) {
		t.delete(t.driver, t.deleteByID(s))
		more := t.newResources(before)
		return len(more) == 0, strings.Join(more, ", ") + " are left"
	})
	t.awaitGone(s)
}

func deleteLeavesNothing(t *trial) {
	before := t.resourcesNow()
	s, pending := t.subject(), t.subject()
	t.launch(s)
	t.awaitRunning(s)
	if len(t.newResources(before)) == 0 {
		t.fatalf("Cloud.Resources does not return the resources of a running instance, so this case cannot detect resources that Delete leaves behind")
	}
	t.delete(t.driver, t.deleteByID(s))
	if left := t.newResources(before); len(left) > 0 {
		t.Errorf("Delete reports Gone for a running instance and leaves %v", left)
	}
	t.launch(pending)
	t.delete(t.restart(), t.deleteByTags(pending))
	if left := t.newResources(before); len(left) > 0 {
		t.Errorf("Delete by tags reports Gone and leaves %v", left)
	}
}

func (t *trial) checkUnchanged(s *subject, after string) {
	t.Helper()
	in, err := t.driver.Get(t.Context(), t.byID(s))
	if err != nil {
		t.Errorf("after %s, Get of %s: %v; the instance must not be changed", after, s.providerID, err)
		return
	}
	if in.State == provider.StateTerminating || in.State == provider.StateStopped {
		t.Errorf("after %s, %s is in state %s; the instance must not be changed", after, s.providerID, in.State)
	}
	t.checkTags(in, s, "after "+after)
}

// foreignOwners returns subjects for a test of Delete. Each has the provider ID of the given subject's instance, but
// its tags do not match this instance. The keys of the map describe the subjects.
func (t *trial) foreignOwners(s *subject) map[string]*subject {
	machine, cluster := t.subject(), t.subjectOf(t.otherCluster())
	sameUID := *s
	sameUID.cluster = t.otherCluster()
	all := map[string]*subject{"another machine": machine, "another machine of another cluster": cluster,
		"a machine of another cluster with the same UID": &sameUID}
	for _, other := range all {
		other.providerID, other.scope = s.providerID, s.scope
	}
	return all
}

func deleteRefusesOthers(t *trial) {
	s := t.subject()
	t.launch(s)
	for who, other := range t.foreignOwners(s) {
		result, err := t.driver.Delete(t.Context(), t.deleteByID(other))
		other.providerID = "" // The cleanup must not delete the instance through this subject.
		if t.wantCode(err, "Delete by "+who, provider.FailedPrecondition) && result.Gone {
			t.Errorf("Delete by %s reports both Gone and an error", who)
		}
		t.checkUnchanged(s, "Delete by "+who)
	}
	for name, change := range map[string]func(*provider.DeleteRequest){
		"neither provider ID nor UID": func(req *provider.DeleteRequest) { req.Machine.UID = "" },
		"no cluster ID":               func(req *provider.DeleteRequest) { req.ClusterID = "" },
	} {
		req := t.deleteByTags(s)
		change(&req)
		_, _ = t.driver.Delete(t.Context(), req) // Any answer is allowed.
		t.checkUnchanged(s, "Delete with "+name)
	}
}

func untaggedIsLeftAlone(t *trial) {
	s := t.subject()
	launched := map[string]*subject{}
	for name, tags := range map[string]map[string]string{
		"no tags":                     nil,
		"only the tag of the cluster": {provider.TagCluster: s.cluster},
		"only the tag of the UID":     {provider.TagMachineUID: string(s.UID)},
		"only the tag of the name":    {provider.TagMachine: s.Namespace + "/" + s.Name},
	} {
		untagged := t.launchUntagged(s, tags)
		launched[name] = untagged
		_, err := t.driver.Delete(t.Context(), t.deleteByID(untagged))
		t.wantCode(err, "Delete of an instance with "+name, provider.FailedPrecondition)
		if all, _ := t.list(s.cluster); tags[provider.TagCluster] == "" && slices.Contains(ids(all), untagged.providerID) {
			t.Errorf("List returns an instance with %s", name)
		}
	}
	result, err := t.driver.Delete(t.Context(), t.deleteByTags(s))
	if err != nil || !result.Gone {
		t.Errorf("Delete by tags of a machine without an instance: Gone %v, error %v; want Gone", result.Gone, err)
	}
	for name, untagged := range launched {
		in, err := t.driver.Get(t.Context(), t.byID(untagged))
		if err != nil {
			t.Errorf("Get of an instance with %s after Deletes that must not change it: %v", name, err)
		} else if in.State == provider.StateTerminating || in.State == provider.StateStopped {
			t.Errorf("an instance with %s is in state %s after Deletes that must not change it", name, in.State)
		}
	}
}

// launchUntagged launches an instance without the driver, waits until it is visible, and returns the subject with its
// ID.
func (t *trial) launchUntagged(s *subject, tags map[string]string) *subject {
	t.Helper()
	id, remove, err := t.Cloud.Launch(t.Context(), tags)
	return t.awaitLaunched(s, id, remove, err)
}

// awaitLaunched waits until Get finds an instance that was launched without the driver. It returns the subject with its
// ID.
func (t *trial) awaitLaunched(s *subject, id string, remove func(context.Context) error, err error) *subject {
	t.Helper()
	t.must(err, "launch an instance without the driver")
	t.cleanups = append(t.cleanups, func() {
		if err := remove(t.Context()); err != nil {
			t.Logf("clean up: remove instance %s: %v", id, err)
		}
	})
	untagged := *s
	untagged.providerID = id
	t.await("Get by provider ID finds the instance that was launched without the driver", func() (bool, string) {
		in, err := t.driver.Get(t.Context(), t.byID(&untagged))
		if provider.IsNotFound(err) {
			return false, "NotFound"
		}
		t.must(err, "Get of an instance that was launched without the driver")
		untagged.scope = in.Scope
		return true, ""
	})
	return &untagged
}
