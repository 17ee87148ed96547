package driver_test

import (
	"fmt"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/fakeazure"
)

func powerRequest(of provider.CreateRequest, in *provider.Instance,
	action provider.PowerAction) provider.PowerRequest {
	return provider.PowerRequest{Machine: of.Machine, Class: of.Class, ClusterID: of.ClusterID,
		ProviderID: in.ProviderID, Scope: in.Scope, Action: action, KeepCapacity: true}
}

// setPower repeats SetPower until the machine has the wanted state.
func (c *cloud) setPower(d provider.Driver, req provider.PowerRequest) error {
	c.Helper()
	want := provider.StateStopped
	if req.Action == provider.PowerOn {
		want = provider.StateRunning
	}
	return waitUntil(c, func() (bool, error) {
		in, err := d.(provider.Power).SetPower(c.Context(), req)
		if provider.CodeOf(err) == provider.Aborted {
			return false, nil
		}
		return err == nil && in.State == want, err
	})
}

func (c *cloud) launchRunning(req provider.CreateRequest) *provider.Instance {
	c.Helper()
	d := c.driver()
	in, err := d.Create(c.Context(), req)
	c.must(err)
	c.eventually("the machine runs", func() (bool, string) {
		in, err = c.readOf(d, req, in)
		return err == nil && in.State == provider.StateRunning, fmt.Sprint(err)
	})
	return in
}

func (c *cloud) readOf(d provider.Driver, req provider.CreateRequest, in *provider.Instance) (*provider.Instance,
	error) {
	get := lookup(req)
	get.ProviderID, get.Scope = in.ProviderID, in.Scope
	return d.Get(c.Context(), get)
}

func TestPowerOffKeepsOrReleasesCapacity(t *testing.T) {
	for name, test := range map[string]struct {
		class  provider.Class
		action provider.PowerAction
		keep   bool
		want   string
	}{
		"shutdown, keep":      {class(), provider.PowerOff, true, "stopped"},
		"shutdown, release":   {class(), provider.PowerOff, false, "deallocated"},
		"force, keep":         {class(), provider.PowerForceOff, true, "stopped"},
		"force, release":      {class(), provider.PowerForceOff, false, "deallocated"},
		"force, ephemeral":    {class("osDisk.ephemeral", map[string]any{}), provider.PowerForceOff, false, "stopped"},
		"shutdown, ephemeral": {class("osDisk.ephemeral", map[string]any{}), provider.PowerOff, false, "stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t, func(o *fakeazure.Options) { o.ChangeDuration = time.Millisecond })
			req := request("a", test.class)
			in, d := c.launchRunning(req), c.driver()
			power := powerRequest(req, in, test.action)
			power.KeepCapacity = test.keep
			for range 2 {
				c.must(c.setPower(d, power))
				if in, err := c.readOf(d, req, in); err != nil || in.State != provider.StateStopped ||
					in.StateMessage != test.want {
					t.Errorf("got %+v, %v, want Stopped and %s", in, err, test.want)
				}
			}
			c.must(c.setPower(d, powerRequest(req, in, provider.PowerOn)))
		})
	}
}

// After a failed start, Azure reports the machine like one that failed at its creation. Machinist would delete such
// a machine.
func TestFailedStartIsNotFailedCreation(t *testing.T) {
	c := newCloud(t, nil)
	req := request("a", class())
	in, d := c.launchRunning(req), c.driver()
	off := powerRequest(req, in, provider.PowerForceOff)
	off.KeepCapacity = false
	c.must(c.setPower(d, off))
	end := c.Inject(fakeazure.Fault{Operation: "VirtualMachines_Start", AsyncCode: "AllocationFailed"})
	err := c.setPower(d, powerRequest(req, in, provider.PowerOn))
	if provider.CodeOf(err) != provider.ResourceExhausted {
		t.Errorf("got %v, want ResourceExhausted", err)
	}
	if in, err := c.readOf(d, req, in); err != nil || in.State != provider.StateStopped {
		t.Errorf("got %+v, %v, want Stopped", in, err)
	}
	end()
	c.must(c.setPower(d, powerRequest(req, in, provider.PowerOn)))
}

func TestSetPowerKeepsFailedCreation(t *testing.T) {
	c := newCloud(t, nil)
	defer c.Inject(fakeazure.Fault{Operation: "VirtualMachines_CreateOrUpdate", AsyncCode: "AllocationFailed"})()
	req, d := request("a", class()), c.driver()
	in, err := d.Create(t.Context(), req)
	c.must(err)
	c.eventually("the creation has failed", func() (bool, string) {
		in, err = c.readOf(d, req, in)
		return err == nil && in.State == provider.StateFailed, fmt.Sprint(err)
	})
	for _, action := range []provider.PowerAction{provider.PowerForceOff, provider.PowerOn} {
		for range 3 {
			in, err := d.SetPower(t.Context(), powerRequest(req, in, action))
			if err != nil || in.State != provider.StateFailed || in.StateCode != provider.ResourceExhausted {
				t.Errorf("%s: got %+v, %v, want Failed with ResourceExhausted", action, in, err)
			}
		}
	}
}

// A change of the size neither starts a machine that was off, nor a machine that is switched off meanwhile.
func TestResizeKeepsMachineOff(t *testing.T) {
	const large = "Standard_D4s_v5"
	for name, before := range map[string]bool{"before": true, "during": false} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, nil)
			d, req := c.createForUpdate(class("resize", "Deallocate"))
			create := request("a", req.Class)
			in := &provider.Instance{ProviderID: req.ProviderID, Scope: req.Scope}
			off := powerRequest(create, in, provider.PowerForceOff)
			off.Machine = req.Machine
			req.Class, req.NodeDrained = class("resize", "Deallocate", "vmSize", large), true
			if !before {
				if result, err := d.Update(t.Context(), req); err != nil || result.Outcome != provider.UpdateInProgress {
					t.Fatalf("got %+v, %v, want InProgress", result, err)
				}
			}
			c.must(c.setPower(d, off))
			if result := c.outcome(d, req); result.Outcome != provider.UpdateDone || result.Instance.Type != large ||
				result.Instance.State != provider.StateStopped {
				t.Errorf("got %+v, want Done, the large size and Stopped", result)
			}
			if n := c.Calls()["VirtualMachines_Start"]; n != 0 {
				t.Errorf("the machine was started %d times", n)
			}
		})
	}
}
