package driver_test

import (
	"slices"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/aws/fakeaws"
)

func deleteRequest(name string, class provider.Class, in *provider.Instance) provider.DeleteRequest {
	return provider.DeleteRequest(getRequest(name, class, in))
}

func TestProtectionIsNamed(t *testing.T) {
	for attribute, protection := range map[string]fakeaws.Attributes{
		"disableApiTermination": {DisableAPITermination: true},
		"disableApiStop":        {DisableAPIStop: true},
	} {
		c := newCloud(t, nil)
		d := c.driver()
		in := c.launchOne(d, "a", class())
		c.Change(idOf(in), protection)
		_, err := d.Delete(t.Context(), deleteRequest("a", class(), in))
		c.wantCode(err, provider.FailedPrecondition)
		if err == nil || !strings.Contains(err.Error(), attribute) {
			t.Errorf("the error does not name the attribute %s: %v", attribute, err)
		}
		c.Change(idOf(in), fakeaws.Attributes{})
		c.awaitGone(d, deleteRequest("a", class(), in))
		c.nothingLeft()
	}
}

// Volumes of pods, and network interfaces of network plugins, are never deleted.
func TestPartsOfPodsStay(t *testing.T) {
	c := newCloud(t, nil)
	d := c.driver()
	in := c.launchOne(d, "a", class())
	volume, network := c.Attach(idOf(in))
	c.KeepParts()
	c.awaitGone(d, deleteRequest("a", class(), in))
	want := []string{"interface/" + network, "volume/" + volume}
	if left := c.Resources(); !slices.Equal(left, want) {
		t.Errorf("after the deletion, the resources %v exist; want %v", left, want)
	}
	page, err := d.List(t.Context(), provider.ListRequest{Class: class(), ClusterID: cluster})
	c.must(err)
	if len(page.Leftovers) > 0 || len(page.Instances) > 0 {
		t.Errorf("List returns %+v", page)
	}
}

// EC2 lists a terminated instance for an hour.
func TestTerminatedInstanceIsGone(t *testing.T) {
	c := newCloud(t, nil)
	d := c.driver()
	in := c.launchOne(d, "a", class())
	c.awaitGone(d, deleteRequest("a", class(), in))
	if state := c.State(idOf(in)); state != "terminated" {
		t.Fatalf("EC2 lists the instance as %q", state)
	}
	_, err := d.Get(t.Context(), getRequest("a", class(), in))
	c.wantCode(err, provider.NotFound)
	result, err := d.Delete(t.Context(), deleteRequest("a", class(), in))
	c.must(err)
	if !result.Gone || result.Found {
		t.Errorf("Delete returns %+v", result)
	}
}

// If a machine has two instances, the deletion of one leaves the other with its parts.
func TestDeleteByIDLeavesTheTwin(t *testing.T) {
	c := newCloud(t, nil)
	d := c.driver()
	in := c.launchOne(d, "a", class())
	before := c.Resources()
	id, zone := c.Launch(map[string]string{provider.TagCluster: cluster, provider.TagMachineUID: "uid-of-a"})
	for _, providerID := range []string{"aws:///" + zone + "/" + id, "aws:///" + zone + "/i-0f000000000000001"} {
		twin := deleteRequest("a", class(), in)
		twin.ProviderID = providerID
		c.awaitGone(d, twin)
	}
	if after := c.Resources(); !slices.Equal(after, before) {
		t.Errorf("the resources were %v and are %v", before, after)
	}
	c.awaitGone(d, deleteRequest("a", class(), in))
	c.nothingLeft()
}

func TestSpotInstanceCannotBeStopped(t *testing.T) {
	c := newCloud(t, nil)
	d := c.driver()
	in := c.launchOne(d, "a", class("spot", map[string]any{}))
	_, err := d.SetPower(t.Context(), provider.PowerRequest{Machine: machineOf("a"), Class: class(), ClusterID: cluster,
		ProviderID: in.ProviderID, Scope: in.Scope, Action: provider.PowerOff})
	c.wantCode(err, provider.Unimplemented)
}
