package driver_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

// Without delete options, the disk and the interface of a virtual machine survive its deletion. After the deletion of
// an adopted Machine, the disk and the interface would cost money forever.
//
// Rule: azure-adopted-parts-go.
func TestDeleteRemovesDiskAndInterfaceOfAdoptedMachine(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	before := c.Resources()
	id, _, err := c.launchIn(t.Context(), "machines", "made-by-hand", adoptableTags())
	c.must(err)
	c.KeepParts()
	r := request("a", class())
	adopt := provider.AdoptRequest{Machine: r.Machine, Class: r.Class, ClusterID: cluster, ProviderID: id, Tags: r.Tags}
	_, err = c.driver().Adopt(t.Context(), adopt)
	c.must(err)
	_, err = c.driver().Adopt(t.Context(), adopt)
	c.must(err)
	remove := provider.DeleteRequest{Machine: r.Machine, Class: r.Class, ClusterID: cluster, ProviderID: id}
	c.eventually("the machine is gone", func() (bool, string) {
		result, err := c.driver().Delete(t.Context(), remove)
		c.must(err)
		return result.Gone, "the machine still exists"
	})
	if left := c.Resources(); !slices.Equal(left, before) {
		t.Errorf("got the resources %v after the deletion, want %v", left, before)
	}
}

// After a change of the class, an adopted machine is updated or replaced like any other machine.
//
// Rule: adopted-counts-as-declared.
func TestAdoptedMachineCountsAsCreatedFromItsClass(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	id, _, err := c.launchIn(t.Context(), "machines", "made-by-hand", adoptableTags())
	c.must(err)
	r := request("a", class())
	_, err = c.driver().Adopt(t.Context(), provider.AdoptRequest{Machine: r.Machine, Class: r.Class, ClusterID: cluster,
		ProviderID: id, Tags: r.Tags})
	c.must(err)
	update := func(class provider.Class) provider.UpdateResult {
		result, err := c.driver().Update(t.Context(), provider.UpdateRequest{Machine: r.Machine, Class: class,
			ClusterID: cluster, ProviderID: id})
		c.must(err)
		return result
	}
	if got := update(r.Class); got.Outcome == provider.UpdateNeedsReplacement {
		t.Errorf("with the class of the adoption: got %s (%s), want no replacement", got.Outcome, got.Reason)
	}
	if got := update(class("zone", "2")); got.Outcome != provider.UpdateNeedsReplacement {
		t.Errorf("with a class for another zone: got %s (%s), want %s", got.Outcome, got.Reason,
			provider.UpdateNeedsReplacement)
	}
}

// A migration must report such machines before it stops the old controllers.
//
// Rules: azure-adopts-marked-only, unadoptable-instance-blocks.
func TestLocateReportsUnmarkedMachine(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	old := legacyOf(provider.SourceClusterK8s, oldSpecs()[provider.SourceClusterK8s])
	tags := map[string]string{"Machine-UID": "uid-of-old"}
	_, _, err := c.launchIn(t.Context(), "machines", "unmarked", tags)
	c.must(err)
	maps.Copy(tags, adoptableTags())
	_, _, err = c.launchIn(t.Context(), "machines", "marked", tags)
	c.must(err)
	located, err := c.driver().Locate(t.Context(), provider.LocateRequest{Legacy: old})
	c.must(err)
	reasons := map[string]string{}
	for _, l := range located {
		reasons[l.Machine] = l.NotAdoptable
	}
	if len(reasons) != 2 || reasons["marked"] != "" || !strings.Contains(reasons["unmarked"], "machinist-adoptable=true") {
		t.Errorf("got the reasons %q, want one for the unmarked machine, with the tag", reasons)
	}
}
