package driver_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/vsphere/fakevsphere"
	"machinist.dev/machinist/providers/vsphere/machine/sample"
)

func machineNamed(name string) provider.Machine {
	return provider.Machine{Namespace: "default", Name: name, UID: "0d3c0b2e-6a8f-4a57-8c34-1f0c3b1d2e55"}
}

func createRequest(m provider.Machine, spec []byte) provider.CreateRequest {
	return provider.CreateRequest{Machine: m, Class: provider.Class{Spec: spec, Credentials: credentials()},
		ClusterID: "c", Token: string(m.UID) + "-1", UserData: provider.NewSecret([]byte("#cloud-config\n"))}
}

// await repeats a function until it returns true.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("timed out: %s", what)
		case <-tick.C:
		}
	}
}

// launch creates a virtual machine and waits until it runs.
func launch(t *testing.T, d provider.Driver, req provider.CreateRequest) *provider.Instance {
	t.Helper()
	in, err := d.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	get := provider.GetRequest{Machine: req.Machine, Class: req.Class, ClusterID: req.ClusterID, ProviderID: in.ProviderID,
		Scope: in.Scope, CreateHandle: in.CreateHandle}
	await(t, "the virtual machine runs", func() bool {
		if in, err = d.Get(t.Context(), get); err != nil {
			t.Fatalf("Get during a clone: %v", err)
		}
		return in.State == provider.StateRunning
	})
	return in
}

// While a clone is running, every call finds it: with its handle, by its token and by tags, also in another process.
func TestRunningCloneIsFound(t *testing.T) {
	c := newCloud(t)
	d, err := c.newDriver()
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.newDriver()
	if err != nil {
		t.Fatal(err)
	}
	req := createRequest(machineNamed("a"), sample.Spec())
	in, err := d.Create(t.Context(), req)
	if err != nil || in.State != provider.StatePending || in.CreateHandle == "" {
		t.Fatalf("Create: %+v, %v; want a pending instance with a handle", in, err)
	}
	get := provider.GetRequest{Machine: req.Machine, Class: req.Class, ClusterID: req.ClusterID}
	byTags, err := other.Get(t.Context(), get)
	if err != nil || byTags.ProviderID != in.ProviderID {
		t.Errorf("Get by tags: %+v, %v; want %s", byTags, err, in.ProviderID)
	}
	get.ProviderID, get.CreateHandle = in.ProviderID, in.CreateHandle
	byHandle, err := other.Get(t.Context(), get)
	if err != nil || byHandle.ProviderID != in.ProviderID {
		t.Errorf("Get with the handle: %+v, %v; want %s", byHandle, err, in.ProviderID)
	}
	later := req
	later.Token = string(req.Machine.UID) + "-2"
	for _, again := range []provider.CreateRequest{req, later} {
		if found, err := other.Create(t.Context(), again); err != nil || found.ProviderID != in.ProviderID {
			t.Errorf("Create with the token %s: %+v, %v; want %s", again.Token, found, err, in.ProviderID)
		}
	}
	if n := c.Created(); n != 1 {
		t.Errorf("%d clones were started, want 1", n)
	}
	await(t, "Delete reports Gone", func() bool {
		result, err := other.Delete(t.Context(), provider.DeleteRequest{Machine: req.Machine, Class: req.Class,
			ClusterID: "c"})
		if err != nil {
			t.Fatal(err)
		}
		return result.Gone
	})
	if left, err := c.Resources(); err != nil || len(left) > 0 {
		t.Errorf("%q are left after a Delete that began during the clone", left)
	}
}

// If vCenter has no room, the task fails after Create. Get with the handle returns the reason.
func TestFailedCloneIsReportedWithItsReason(t *testing.T) {
	c := newCloud(t)
	d, err := c.newDriver()
	if err != nil {
		t.Fatal(err)
	}
	end := c.Inject(fakevsphere.Fault{Methods: []string{"CloneVM_Task"}, CloneFails: "InsufficientResourcesFault"})
	req := createRequest(machineNamed("a"), sample.Spec())
	in, err := d.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	get := provider.GetRequest{Machine: req.Machine, Class: req.Class, ClusterID: req.ClusterID, ProviderID: in.ProviderID,
		CreateHandle: in.CreateHandle}
	await(t, "Get returns NotFound with the CreateCode ResourceExhausted", func() bool {
		_, err = d.Get(t.Context(), get)
		return provider.IsNotFound(err) && provider.CreateCodeOf(err) == provider.ResourceExhausted
	})
	end()
	if again := launch(t, d, req); again.ProviderID != in.ProviderID {
		t.Errorf("the next Create returns %s, want %s", again.ProviderID, in.ProviderID)
	}
}

// A copy of a virtual machine has its tags, but is not an instance of Machinist.
func TestCopyIsNotOurs(t *testing.T) {
	c := newCloud(t)
	d, err := c.newDriver()
	if err != nil {
		t.Fatal(err)
	}
	req := createRequest(machineNamed("a"), sample.Spec())
	in := launch(t, d, req)
	copied, err := c.Copy(t.Context(), uuidOf(in.ProviderID), "a-copy")
	if err != nil {
		t.Fatal(err)
	}
	page, err := d.List(t.Context(), provider.ListRequest{Class: req.Class, ClusterID: "c"})
	if err != nil || len(page.Instances) != 1 || page.Instances[0].ProviderID != in.ProviderID {
		t.Errorf("List returns %+v, %v; want only %s", page.Instances, err, in.ProviderID)
	}
	_, err = d.Delete(t.Context(), provider.DeleteRequest{Machine: req.Machine, Class: req.Class, ClusterID: "c",
		ProviderID: "vsphere://" + copied})
	if provider.CodeOf(err) != provider.FailedPrecondition {
		t.Errorf("Delete of the copy: %v, want FailedPrecondition", err)
	}
}

// Volumes of pods that are still attached must survive the deletion of the virtual machine.
func TestDeleteDetachesDisksOfOthers(t *testing.T) {
	c := newCloud(t)
	d, err := c.newDriver()
	if err != nil {
		t.Fatal(err)
	}
	req := createRequest(machineNamed("a"), sample.Spec("disks", []any{map[string]any{"sizeGiB": 1}}))
	in := launch(t, d, req)
	vm, err := c.Find(t.Context(), uuidOf(in.ProviderID))
	if err != nil {
		t.Fatal(err)
	}
	file, err := c.AttachVolume(t.Context(), vm, "volume-of-a-pod")
	if err != nil {
		t.Fatal(err)
	}
	devices, err := vm.Device(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(devices.SelectByType((*types.VirtualDisk)(nil))); n != 3 {
		t.Fatalf("the virtual machine has %d disks, want those of template, class and pod", n)
	}
	await(t, "the virtual machine is gone", func() bool {
		result, err := d.Delete(t.Context(), provider.DeleteRequest{Machine: req.Machine, Class: req.Class, ClusterID: "c",
			ProviderID: in.ProviderID, Scope: in.Scope})
		if err != nil {
			t.Fatal(err)
		}
		return result.Gone
	})
	if !c.FileExists(file) {
		t.Errorf("the disk %s of a pod was deleted", file)
	}
	left, err := c.Resources()
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range left {
		if !strings.Contains(resource, "LocalDS_0/volumes") {
			t.Errorf("%s is left", resource)
		}
	}
}

// CPUs and memory change in a machine that is off. The driver switches a drained machine off and on, and nothing else.
func TestUpdateSwitchesDrainedMachineOffAndOn(t *testing.T) {
	c := newCloud(t)
	d, err := c.newDriver()
	if err != nil {
		t.Fatal(err)
	}
	req := createRequest(machineNamed("a"), sample.Spec("rootDiskGiB", 10))
	in := launch(t, d, req)
	update := provider.UpdateRequest{Machine: req.Machine, ClusterID: "c", ProviderID: in.ProviderID, Scope: in.Scope,
		Class: provider.Class{Spec: sample.Spec("cpus", 4, "memoryMiB", 8192, "rootDiskGiB", 20), Credentials: credentials()}}
	result, err := d.Update(t.Context(), update)
	if err != nil || result.Outcome != provider.UpdateNeedsDrain || !c.IsOn(uuidOf(in.ProviderID)) {
		t.Fatalf("Update before the drain: %+v, %v; want NeedsDrain and a virtual machine that is on", result, err)
	}
	update.NodeDrained = true
	wasOff := false
	await(t, "Update is done", func() bool {
		// The kubelet stops with its machine. So the Node is no longer known as drained after the update has begun.
		update.NodeDrained = result.Outcome != provider.UpdateInProgress
		if result, err = d.Update(t.Context(), update); err != nil {
			t.Fatal(err)
		}
		wasOff = wasOff || !c.IsOn(uuidOf(in.ProviderID))
		return result.Outcome == provider.UpdateDone
	})
	if !wasOff || result.Instance.State != provider.StateRunning || !c.IsOn(uuidOf(in.ProviderID)) {
		t.Errorf("was off: %v, now %+v; want a virtual machine that was off and is on", wasOff, result.Instance)
	}
	vm, err := c.Find(t.Context(), uuidOf(in.ProviderID))
	if err != nil {
		t.Fatal(err)
	}
	checkHardware(t, vm, 4, 8192, 20)
	update.Class.Spec = sample.Spec("rootDiskGiB", 15)
	if result, err = d.Update(t.Context(), update); err != nil || result.Outcome != provider.UpdateNeedsReplacement {
		t.Errorf("Update to a smaller disk: %+v, %v; want NeedsReplacement", result, err)
	}
}

func checkHardware(t *testing.T, vm *object.VirtualMachine, cpus int32, memoryMiB, diskGiB int64) {
	t.Helper()
	hardware, err := fakevsphere.Hardware(t.Context(), vm)
	if err != nil {
		t.Fatal(err)
	}
	if hardware.NumCPU != cpus || int64(hardware.MemoryMB) != memoryMiB {
		t.Errorf("got %d CPUs and %d MiB, want %d and %d", hardware.NumCPU, hardware.MemoryMB, cpus, memoryMiB)
	}
	for _, device := range hardware.Device {
		if disk, ok := device.(*types.VirtualDisk); ok && disk.CapacityInBytes != diskGiB<<30 {
			t.Errorf("the disk has %d bytes, want %d GiB", disk.CapacityInBytes, diskGiB)
		}
	}
}
