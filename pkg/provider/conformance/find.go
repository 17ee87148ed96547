package conformance

import (
	"fmt"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

func findCases() []testCase {
	return []testCase{
		{name: "TagsAreThere", rule: "Create, Get and List return the cluster, the UID and namespace/name from the tags.",
			test: tagsAreThere},
		{name: "ProviderIDs", rule: "A provider ID never changes, and its last segment is unique.", test: providerIDs},
		{name: "ScopeIsEnough",
			rule: "Get and Delete with a provider ID and Scope work in a new process, even if the class no longer exists.",
			test: scopeIsEnough},
		{name: "InvalidClassFindsInstances",
			rule: "Get and Delete work with a class that Validate refuses, unless the wrong field decides where the " +
				"instances are. A class can become invalid while its machines exist, for example because its template was " +
				"deleted.",
			test: invalidClassFindsInstances},
		{name: "GetAndListAgree",
			rule: "Get by provider ID, Get by tags and List return the same data for an instance.",
			test: getAndListAgree},
		{name: "NotFound",
			rule: "Get returns NotFound for an instance that never existed or was deleted, and by tags for an instance of " +
				"another cluster.",
			test: notFound},
		{name: "ListGoesThroughAllPages", rule: "List returns every instance exactly once on its pages, and the pages come to an end.",
			test: listGoesThroughAllPages},
		{name: "ListIsOfOneCluster", rule: "List returns the instances of the requested cluster and no others.",
			test: listIsOfOneCluster},
	}
}

func (t *trial) checkTags(in *provider.Instance, s *subject, how string) {
	t.Helper()
	if key := s.Namespace + "/" + s.Name; in.ClusterID != s.cluster || in.MachineUID != s.UID || in.MachineKey != key {
		t.Errorf("%s: the instance has ClusterID %q, MachineUID %q, MachineKey %q; want %q, %q, %q",
			how, in.ClusterID, in.MachineUID, in.MachineKey, s.cluster, s.UID, key)
	}
}

func tagsAreThere(t *trial) {
	s := t.subject()
	t.checkTags(t.create(s), s, "Create")
	t.awaitVisible(s)
	in, err := t.driver.Get(t.Context(), t.byID(s))
	t.must(err, "Get by provider ID")
	t.checkTags(in, s, "Get by provider ID")
	in, err = t.driver.Get(t.Context(), t.byTags(s))
	t.must(err, "Get by tags")
	t.checkTags(in, s, "Get by tags")
	for _, in := range t.listed(s) {
		t.checkTags(&in, s, "List")
	}
}

func providerIDs(t *trial) {
	segments := map[string]string{}
	for range t.Instances {
		s := t.subject()
		t.launch(s)
		last := s.providerID[strings.LastIndex(s.providerID, "/")+1:]
		if other, taken := segments[last]; taken {
			t.Errorf("the provider IDs %q and %q end in the same segment", other, s.providerID)
		}
		segments[last] = s.providerID
	}
	for _, s := range t.subjects {
		t.awaitRunning(s)
		in, err := t.restart().Get(t.Context(), t.byTags(s))
		t.must(err, "Get by tags")
		if in.ProviderID != s.providerID {
			t.Errorf("the provider ID of the running instance is %q, and was %q", in.ProviderID, s.providerID)
		}
	}
}

func scopeIsEnough(t *trial) {
	s := t.subject()
	t.launch(s)
	get, del := t.byID(s), t.deleteByID(s)
	get.Class.Spec, del.Class.Spec = nil, nil
	d := t.restart()
	in, err := d.Get(t.Context(), get)
	t.must(err, "Get by provider ID without Class.Spec, with Scope %q", s.scope)
	if in.ProviderID != s.providerID || in.Scope != s.scope {
		t.Errorf("Get without Class.Spec returns %q with Scope %q, want %q with %q", in.ProviderID, in.Scope,
			s.providerID, s.scope)
	}
	t.delete(d, del)
	t.awaitGone(s)
}

func invalidClassFindsInstances(t *trial) {
	tested := 0
	for _, invalid := range t.InvalidSpecs {
		if invalid.HidesLocation {
			continue
		}
		tested++
		for how, request := range map[string]func(*subject) provider.DeleteRequest{"provider ID": t.deleteByID,
			"tags": t.deleteByTags} {
			s := t.subject()
			t.launch(s)
			req := request(s)
			req.Class.Spec = invalid.Spec
			in, err := t.restart().Get(t.Context(), provider.GetRequest(req))
			t.must(err, "Get by %s with a class that Validate refuses (%s)", how, invalid.Name)
			if in.ProviderID != s.providerID {
				t.Errorf("Get by %s with a class that Validate refuses (%s) returns %q, want %q", how, invalid.Name,
					in.ProviderID, s.providerID)
			}
			t.delete(t.restart(), req)
			t.awaitGone(s)
		}
	}
	if tested == 0 {
		t.skip("every providerSpec in Config.InvalidSpecs has HidesLocation")
	}
}

// identity returns the data that must not depend on how an instance was found.
func identity(in *provider.Instance) string {
	return fmt.Sprintf("%q of machine %q (%s) in cluster %q, node %q, type %q in %q %q, scope %q",
		in.ProviderID, in.MachineUID, in.MachineKey, in.ClusterID, in.NodeName, in.Type, in.Region, in.Zone, in.Scope)
}

func getAndListAgree(t *trial) {
	s := t.subject()
	t.launch(s)
	t.awaitRunning(s)
	byID, err := t.driver.Get(t.Context(), t.byID(s))
	t.must(err, "Get by provider ID")
	byTags, err := t.driver.Get(t.Context(), t.byTags(s))
	t.must(err, "Get by tags")
	if a, b := identity(byID), identity(byTags); a != b {
		t.Errorf("Get by provider ID and by tags disagree:\n%s\n%s", a, b)
	}
	for _, listed := range t.listed(s) {
		if a, b := identity(byID), identity(&listed); a != b {
			t.Errorf("Get and List disagree:\n%s\n%s", a, b)
		}
	}
}

func notFound(t *trial) {
	never := t.subject()
	_, err := t.driver.Get(t.Context(), t.byTags(never))
	t.wantCode(err, "Get by tags of a machine that has no instance", provider.NotFound)

	s := t.subject()
	t.launch(s)
	elsewhere := t.byTags(s)
	elsewhere.ClusterID = t.otherCluster()
	_, err = t.driver.Get(t.Context(), elsewhere)
	t.wantCode(err, "Get by tags of another cluster", provider.NotFound)
	withoutUID := t.byTags(s)
	withoutUID.Machine.UID = ""
	if in, err := t.driver.Get(t.Context(), withoutUID); err == nil {
		t.Errorf("Get with neither provider ID nor UID returns %q", in.ProviderID)
	}
	t.delete(t.driver, t.deleteByID(s))
	t.awaitGone(s)
}

func listGoesThroughAllPages(t *trial) {
	var want []string
	for range t.Instances {
		s := t.subject()
		t.launch(s)
		want = append(want, s.providerID)
	}
	all, pages := t.list(t.ClusterID)
	if pages == 1 {
		t.Logf("all %d instances were on one page: paging was not tested", len(all))
	}
	counts := map[string]int{}
	for _, in := range all {
		counts[in.ProviderID]++
	}
	for _, id := range want {
		if counts[id] != 1 {
			t.Errorf("List returns %s %d times on its %d pages, want once", id, counts[id], pages)
		}
	}
}

func listIsOfOneCluster(t *trial) {
	mine, other := t.subject(), t.subjectOf(t.otherCluster())
	t.launch(mine)
	t.launch(other)
	for cluster, absent := range map[string]*subject{mine.cluster: other, other.cluster: mine} {
		all, _ := t.list(cluster)
		for _, in := range all {
			if in.ClusterID != cluster {
				t.Errorf("List of cluster %q returns %s of cluster %q", cluster, in.ProviderID, in.ClusterID)
			}
		}
		if slices.Contains(ids(all), absent.providerID) {
			t.Errorf("List of cluster %q returns %s, which belongs to another cluster", cluster, absent.providerID)
		}
	}
	page, err := t.driver.List(t.Context(), provider.ListRequest{Class: t.Class})
	if err == nil && len(page.Instances) > 0 {
		t.Errorf("List without a cluster ID returns %v", ids(page.Instances))
	}
}
