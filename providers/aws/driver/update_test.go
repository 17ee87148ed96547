package driver_test

import (
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

func updateRequest(name string, class provider.Class, in *provider.Instance) provider.UpdateRequest {
	return provider.UpdateRequest{Machine: machineOf(name), Class: class, ClusterID: cluster, ProviderID: in.ProviderID,
		Scope: in.Scope, Version: "v1.36.3"}
}

func TestUpdateInPlace(t *testing.T) {
	c := newCloud(t, nil)
	d := c.driver()
	in := c.launchOne(d, "a", class("tags", map[string]any{"team": "blue", "old name": "x"}))
	if result := c.updated(d, updateRequest("a", class("tags", map[string]any{"team": "blue", "old name": "x"}),
		in)); result.Outcome != provider.UpdateDone || c.Calls()["CreateTags"] != 0 {
		t.Fatalf("Update to the same class: %+v", result)
	}
	changed := class("tags", map[string]any{"team": "green", "owner": "red"}, "sourceDestCheck", false,
		"securityGroups", []any{map[string]any{"id": "sg-0a000000000000002"},
			map[string]any{"id": "sg-0a000000000000001"}},
		"metadataOptions.httpTokens", "optional", "iamInstanceProfile", "nodes",
		"rootVolume", map[string]any{"sizeGiB": 50, "iops": 4000, "throughput": 250})
	if result := c.updated(d, updateRequest("a", changed, in)); result.Outcome != provider.UpdateDone {
		t.Fatalf("Update: %+v", result)
	}
	all := c.PartTags(idOf(in))
	all[idOf(in)] = c.Tags(idOf(in))
	for id, tags := range all {
		if _, has := tags["old name"]; has || tags["team"] != "green" || tags["owner"] != "red" ||
			tags[provider.TagMachineUID] != "uid-of-a" {
			t.Errorf("%s has the tags %v", id, tags)
		}
	}
	calls := c.Calls()
	for action, want := range map[string]int{"ModifyNetworkInterfaceAttribute": 2, "ModifyInstanceMetadataOptions": 1,
		"AssociateIamInstanceProfile": 1, "ModifyVolume": 1, "StopInstances": 0} {
		if calls[action] != want {
			t.Errorf("Update sent %d calls of %s, want %d", calls[action], action, want)
		}
	}
}

func TestUpdateNeedsReplacement(t *testing.T) {
	c := newCloud(t, nil)
	d := c.driver()
	in := c.launchOne(d, "a", class())
	for name, changes := range map[string][]any{
		"another subnet":  {"subnet.id", "subnet-0a000000000000002"},
		"another image":   {"imageID", "ami-0a000000000000002"},
		"a smaller disk":  {"rootVolume.sizeGiB", 10},
		"no encryption":   {"rootVolume.encrypted", false},
		"another type":    {"instanceType", "m6i.xlarge"},
		"one more volume": {"dataVolumes", nil},
		"spot":            {"spot", map[string]any{}},
	} {
		result := c.updated(d, updateRequest("a", class(changes...), in))
		if result.Outcome != provider.UpdateNeedsReplacement || result.Reason == "" {
			t.Errorf("%s: %+v", name, result)
		}
	}
	version := updateRequest("a", class(), in)
	version.Version = "v1.37.0"
	if result := c.updated(d, version); result.Outcome != provider.UpdateNeedsReplacement {
		t.Errorf("another version: %+v", result)
	}
}

func TestResizeStopsAndStarts(t *testing.T) {
	c := newCloud(t, nil)
	in := c.launchOne(c.driver(), "a", class())
	req := updateRequest("a", class("instanceType", "m6i.xlarge", "resize", "StopAndStart"), in)
	if result := c.updated(c.driver(), req); result.Outcome != provider.UpdateNeedsDrain {
		t.Fatalf("Update before the drain: %+v", result)
	}
	req.NodeDrained = true
	// Each call is made by a new process.
	c.eventually("the instance has the new type and runs", func() (bool, string) {
		result, err := c.driver().Update(t.Context(), req)
		c.must(err)
		return result.Outcome == provider.UpdateDone, string(result.Outcome)
	})
	got, err := c.driver().Get(t.Context(), getRequest("a", class(), in))
	c.must(err)
	if got.Type != "m6i.xlarge" || got.State != provider.StateRunning || c.Tags(idOf(in))["machinist-resize"] != "" {
		t.Errorf("the instance is %+v with the tags %v", got, c.Tags(idOf(in)))
	}
}

// EBS accepts the next modification of a volume after 6 hours.
func TestSecondModificationOfAVolumeWaits(t *testing.T) {
	c := newCloud(t, nil)
	d := c.driver()
	in := c.launchOne(d, "a", class())
	c.updated(d, updateRequest("a", class("rootVolume.sizeGiB", 30), in))
	_, err := d.Update(t.Context(), updateRequest("a", class("rootVolume.sizeGiB", 40), in))
	c.wantCode(err, provider.Aborted)
	if err == nil || !strings.Contains(err.Error(), "6 hours") {
		t.Errorf("the error is %v", err)
	}
}
