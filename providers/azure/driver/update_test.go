package driver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/fakeazure"
)

func (c *cloud) createForUpdate(first provider.Class) (d provider.Driver, req provider.UpdateRequest) {
	c.Helper()
	create := request("a", first)
	d = c.driver()
	in, err := d.Create(c.Context(), create)
	c.must(err)
	return d, provider.UpdateRequest{Machine: create.Machine, ClusterID: cluster, ProviderID: in.ProviderID,
		Scope: in.Scope, Version: create.Version, Class: first}
}

func (c *cloud) outcome(d provider.Driver, req provider.UpdateRequest) (result provider.UpdateResult) {
	c.Helper()
	c.eventually("the update ends", func() (bool, string) {
		var err error
		result, err = d.Update(c.Context(), req)
		if provider.CodeOf(err) != provider.Aborted {
			c.must(err)
		}
		return err == nil && result.Outcome != provider.UpdateInProgress, fmt.Sprint(result.Reason, err)
	})
	return result
}

func (c *cloud) tagsOf() map[string]string {
	for _, tags := range c.State().Tags {
		return tags
	}
	return nil
}

func TestUpdateChangesTagsAndKeepsOthers(t *testing.T) {
	t.Parallel()
	c := newCloud(t, func(o *fakeazure.Options) { o.ChangeDuration = 5 * time.Millisecond })
	d, req := c.createForUpdate(class("tags", map[string]any{"team": "blue", "old": "1"}))
	c.Tag("policy", "other")
	req.Class = class("tags", map[string]any{"Team": "green", "new": "2"})
	if result := c.outcome(d, req); result.Outcome != provider.UpdateDone {
		t.Fatalf("got %s (%s), want Done", result.Outcome, result.Reason)
	}
	tags := c.tagsOf()
	for key, want := range map[string]string{"Team": "green", "team": "", "new": "2", "old": "", "policy": "other",
		provider.TagMachineUID: string(req.Machine.UID)} {
		if tags[key] != want {
			t.Errorf("tag %s: got %q, want %q", key, tags[key], want)
		}
	}
	for _, kind := range []string{"disks", "networkInterfaces", "publicIPAddresses"} {
		for name, tags := range c.PartTags(kind) {
			if tags["Team"] != "green" || tags["old"] != "" || tags[provider.TagCluster] != cluster {
				t.Errorf("%s %s: got the tags %v", kind, name, tags)
			}
		}
	}
	before := c.Calls()["VirtualMachines_Update"]
	if result := c.outcome(d, req); result.Outcome != provider.UpdateDone ||
		c.Calls()["VirtualMachines_Update"] != before {
		t.Errorf("second update: got %s with %d more changes, want Done with none", result.Outcome,
			c.Calls()["VirtualMachines_Update"]-before)
	}
}

func TestUpdateChangesSizeOfDeallocatedMachine(t *testing.T) {
	t.Parallel()
	const large = "Standard_D4s_v5"
	c := newCloud(t, func(o *fakeazure.Options) { o.ChangeDuration = 5 * time.Millisecond })
	small := class("resize", "Deallocate")
	d, req := c.createForUpdate(small)
	req.Class = class("resize", "Deallocate", "vmSize", large)
	if result := c.outcome(d, req); result.Outcome != provider.UpdateNeedsDrain {
		t.Fatalf("before the drain: got %s, want NeedsDrain", result.Outcome)
	}
	if n := c.Calls()["VirtualMachines_Deallocate"]; n != 0 {
		t.Fatal("the machine was deallocated before the drain")
	}
	req.NodeDrained = true
	if result := c.outcome(d, req); result.Outcome != provider.UpdateDone || result.Instance.Type != large ||
		result.Instance.State != provider.StateRunning {
		t.Fatalf("got %s (%s), %+v, want Done with the large size", result.Outcome, result.Reason, result.Instance)
	}
	if _, there := c.tagsOf()["machinist-resize"]; there {
		t.Error("the tag machinist-resize still exists")
	}

	t.Log("an unavailable size leaves the machine deallocated, and the change can be reverted")
	end := c.Inject(fakeazure.Fault{Operation: "VirtualMachines_Update", Skip: 1, Status: http.StatusConflict,
		Code: "SkuNotAvailable"})
	back := req
	back.Class = small
	var err error
	c.eventually("Azure refuses the change", func() (bool, string) {
		_, err = d.Update(t.Context(), back)
		return provider.CodeOf(err) == provider.ResourceExhausted, fmt.Sprint(err)
	})
	if running := c.RunningNames(); len(running) != 0 {
		t.Errorf("got the running machines %v while the size cannot be changed, want none", running)
	}
	end()
	if result := c.outcome(c.driver(), req); result.Outcome != provider.UpdateDone || result.Instance.Type != large {
		t.Errorf("reverted change: got %s (%s), want Done", result.Outcome, result.Reason)
	}
	if running := c.RunningNames(); len(running) != 1 {
		t.Errorf("got the running machines %v after the change was reverted, want one", running)
	}
}

// An update must not start a machine that a user stopped.
func TestUpdateKeepsStoppedMachineStopped(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	d, req := c.createForUpdate(class())
	c.must(c.call(t.Context(), http.MethodPost, strings.TrimPrefix(req.ProviderID, "azure://")+
		"/deallocate?api-version=2025-04-01", nil))
	req.Class, req.NodeDrained = class("tags.team", "green"), true
	if result := c.outcome(d, req); result.Outcome != provider.UpdateDone ||
		result.Instance.State != provider.StateStopped {
		t.Errorf("got %s and state %s, want Done and Stopped", result.Outcome, result.Instance.State)
	}
}

func TestUpdateNeedsReplacement(t *testing.T) {
	c := newCloud(t, nil)
	d, base := c.createForUpdate(class())
	for name, change := range map[string]func(*provider.UpdateRequest){
		"size": func(r *provider.UpdateRequest) { r.Class = class("vmSize", "Standard_D4s_v5") },
		"image": func(r *provider.UpdateRequest) {
			r.Class = class("image.marketplace.version", "22.04.202506100")
		},
		"disk":           func(r *provider.UpdateRequest) { r.Class = class("osDisk.sizeGiB", 100) },
		"zone":           func(r *provider.UpdateRequest) { r.Class = class("zone", "2") },
		"resource group": func(r *provider.UpdateRequest) { r.Class = class("resourceGroup", "network") },
		"version":        func(r *provider.UpdateRequest) { r.Version = "v1.37.0" },
	} {
		req := base
		req.NodeDrained = true
		change(&req)
		if result := c.outcome(d, req); result.Outcome != provider.UpdateNeedsReplacement || result.Reason == "" {
			t.Errorf("%s: got %s (%q), want NeedsReplacement with a reason", name, result.Outcome, result.Reason)
		}
	}
	for name, unchanged := range map[string]provider.Class{
		"other value of resize": class("resize", "Deallocate"),
		"group in upper case":   class("resourceGroup", "MACHINES"),
		"explicit default":      class("adminUsername", "machinist"),
	} {
		req := base
		req.Class = unchanged
		if result := c.outcome(d, req); name != "group in upper case" && result.Outcome != provider.UpdateDone {
			t.Errorf("%s: got %s (%q), want Done", name, result.Outcome, result.Reason)
		}
	}
}
