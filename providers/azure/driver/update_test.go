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

// made makes a machine and returns what asks to bring it to a class.
func (c *cloud) made(first provider.Class) (d provider.Driver, req provider.UpdateRequest) {
	c.Helper()
	create := request("a", first)
	d = c.driver()
	in, err := d.Create(c.Context(), create)
	c.must(err)
	return d, provider.UpdateRequest{Machine: create.Machine, ClusterID: cluster, ProviderID: in.ProviderID,
		Scope: in.Scope, Version: create.Version, Class: first}
}

// outcome updates until it is not under way any more.
func (c *cloud) outcome(d provider.Driver, req provider.UpdateRequest) (result provider.UpdateResult) {
	c.Helper()
	c.eventually("the update comes to an outcome", func() (bool, string) {
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

func TestTagsChangeInPlaceAndOthersStay(t *testing.T) {
	bothWays(t, func(t *testing.T, newCloud opener) {
		c := newCloud(t, func(o *fakeazure.Options) { o.Change = 5 * time.Millisecond })
		d, req := c.made(class("tags", map[string]any{"team": "blue", "old": "1"}))
		c.Tag("policy", "theirs")
		req.Class = class("tags", map[string]any{"Team": "green", "new": "2"})
		if result := c.outcome(d, req); result.Outcome != provider.UpdateDone {
			t.Fatalf("got %s: %s", result.Outcome, result.Reason)
		}
		tags := c.tagsOf()
		for key, want := range map[string]string{"Team": "green", "team": "", "new": "2", "old": "", "policy": "theirs",
			provider.TagMachineUID: string(req.Machine.UID)} {
			if tags[key] != want {
				t.Errorf("the tag %s is %q, want %q", key, tags[key], want)
			}
		}
		for _, kind := range []string{"disks", "networkInterfaces", "publicIPAddresses"} {
			for name, tags := range c.PartTags(kind) {
				if tags["Team"] != "green" || tags["old"] != "" || tags[provider.TagCluster] != cluster {
					t.Errorf("%s %s has the tags %v", kind, name, tags)
				}
			}
		}
		before := c.Calls()["VirtualMachines_Update"]
		if result := c.outcome(d, req); result.Outcome != provider.UpdateDone ||
			c.Calls()["VirtualMachines_Update"] != before {
			t.Errorf("asked again: %s, with %d more changes", result.Outcome, c.Calls()["VirtualMachines_Update"]-before)
		}
	})
}

func TestASizeChangesWhileTheMachineIsDeallocated(t *testing.T) {
	bothWays(t, func(t *testing.T, newCloud opener) {
		const large = "Standard_D4s_v5"
		c := newCloud(t, func(o *fakeazure.Options) { o.Change = 5 * time.Millisecond })
		small := class("resize", "Deallocate")
		d, req := c.made(small)
		req.Class = class("resize", "Deallocate", "vmSize", large)
		if result := c.outcome(d, req); result.Outcome != provider.UpdateNeedsDrain {
			t.Fatalf("before the drain: %s", result.Outcome)
		}
		if n := c.Calls()["VirtualMachines_Deallocate"]; n != 0 {
			t.Fatal("the machine was deallocated under its pods")
		}
		req.Drained = true
		if result := c.outcome(d, req); result.Outcome != provider.UpdateDone || result.Instance.Type != large ||
			result.Instance.State != provider.StateRunning {
			t.Fatalf("got %s: %s, %+v", result.Outcome, result.Reason, result.Instance)
		}
		if _, there := c.tagsOf()["machinist-resize"]; there {
			t.Error("the tag of the change is still there")
		}

		t.Log("a size that is not to be had leaves it deallocated, and the way back is open")
		end := c.Inject(fakeazure.Fault{Operation: "VirtualMachines_Update", Skip: 1, Status: http.StatusConflict,
			Code: "SkuNotAvailable"})
		back := req
		back.Class = small
		var err error
		c.eventually("the change is refused", func() (bool, string) {
			_, err = d.Update(t.Context(), back)
			return provider.CodeOf(err) == provider.ResourceExhausted, fmt.Sprint(err)
		})
		if running := c.Running(); len(running) != 0 {
			t.Errorf("%v run while their size cannot be changed", running)
		}
		end()
		if result := c.outcome(c.driver(), req); result.Outcome != provider.UpdateDone || result.Instance.Type != large {
			t.Errorf("taken back: %s: %s", result.Outcome, result.Reason)
		}
		if running := c.Running(); len(running) != 1 {
			t.Errorf("%v run after the change was taken back", running)
		}
	})
}

// A machine that somebody stopped is not started by an update that has nothing to do with it.
func TestAMachineThatSomebodyStoppedStaysStopped(t *testing.T) {
	bothWays(t, func(t *testing.T, newCloud opener) {
		c := newCloud(t, nil)
		d, req := c.made(class())
		c.must(c.call(t.Context(), http.MethodPost, strings.TrimPrefix(req.ProviderID, "azure://")+
			"/deallocate?api-version=2025-04-01", nil))
		req.Class, req.Drained = class("tags.team", "green"), true
		if result := c.outcome(d, req); result.Outcome != provider.UpdateDone ||
			result.Instance.State != provider.StateStopped {
			t.Errorf("got %s and state %s", result.Outcome, result.Instance.State)
		}
	})
}

func TestWhatNeedsAnotherMachine(t *testing.T) {
	c := newCloud(t, nil)
	d, base := c.made(class())
	for name, change := range map[string]func(*provider.UpdateRequest){
		"a size": func(r *provider.UpdateRequest) { r.Class = class("vmSize", "Standard_D4s_v5") },
		"an image": func(r *provider.UpdateRequest) {
			r.Class = class("image.marketplace.version", "22.04.202506100")
		},
		"a disk":           func(r *provider.UpdateRequest) { r.Class = class("osDisk.sizeGiB", 100) },
		"a zone":           func(r *provider.UpdateRequest) { r.Class = class("zone", "2") },
		"a resource group": func(r *provider.UpdateRequest) { r.Class = class("resourceGroup", "network") },
		"a version":        func(r *provider.UpdateRequest) { r.Version = "v1.37.0" },
	} {
		req := base
		req.Drained = true
		change(&req)
		if result := c.outcome(d, req); result.Outcome != provider.UpdateNeedsReplacement || result.Reason == "" {
			t.Errorf("%s: %s, %q", name, result.Outcome, result.Reason)
		}
	}
	for name, same := range map[string]provider.Class{
		"another way to resize": class("resize", "Deallocate"),
		"the group in capitals": class("resourceGroup", "MACHINES"),
		"the default said":      class("adminUsername", "machinist"),
	} {
		req := base
		req.Class = same
		if result := c.outcome(d, req); name != "the group in capitals" && result.Outcome != provider.UpdateDone {
			t.Errorf("%s: %s, %q", name, result.Outcome, result.Reason)
		}
	}
}
