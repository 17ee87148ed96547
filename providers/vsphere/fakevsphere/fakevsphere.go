// Package fakevsphere serves vcsim, the simulator of govmomi, with the faults that a vCenter has. vcsim executes the
// calls. This package adds delays of tasks, the activation IDs of clones, and faults between client and vcsim.
package fakevsphere

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// Options configure a VSphere.
type Options struct {
	// Username and Password are the only accepted credentials. Required.
	Username, Password string
	// TaskDelays are the times before vcsim executes a task, by the name of the task, such as CloneVm, PowerOn, PowerOff,
	// ReconfigVm and Destroy. vcsim has one set of delays for a process, so all instances must have the same delays.
	TaskDelays map[string]time.Duration
	// Hosts runs the guests. Without Hosts, virtual machines run no guest.
	Hosts Hosts
}

// The objects in the inventory of a VSphere, besides those of vcsim.
const (
	machinesFolder = "machines"
	templateFolder = "templates"
	templateName   = "debian-12"
	// templateDiskGiB is the size of the template's disk.
	templateDiskGiB = 10
)

// VSphere is a vCenter in memory. Its disks are files in a temporary folder.
type VSphere struct {
	model  *simulator.Model
	client *vim25.Client
	sdk    http.Handler
	// templates is the folder of the template.
	templates types.ManagedObjectReference

	mu      sync.Mutex
	faults  []*activeFault
	late    sync.WaitGroup
	created int
	// clones are tasks that may be running.
	clones []*simulator.Task
	logins atomic.Int64
}

// New returns a running VSphere. Close it at the end.
func New(ctx context.Context, o Options) (*VSphere, error) {
	delays := map[string]int{"LockHandoff": 0}
	for task, delay := range o.TaskDelays {
		delays[task] = int(delay.Milliseconds())
	}
	setDelays.Do(func() { simulator.TaskDelay.MethodDelay = delays })
	model := simulator.VPX()
	model.Machine, model.Pod = 0, 1
	if err := model.Create(); err != nil {
		return nil, fmt.Errorf("create the inventory of vcsim: %w", err)
	}
	v := &VSphere{model: model}
	if o.Hosts != nil {
		model.Map().AddHandler(&guests{vsphere: v, hosts: o.Hosts, running: map[types.ManagedObjectReference]*guest{}})
	}
	service := model.Service
	service.Listen = &url.URL{Scheme: "https", Host: "vcsim", User: url.UserPassword(o.Username, o.Password)}
	service.RegisterSDK(model.Map())
	v.sdk = service.ServeMux
	var err error
	if v.client, err = vim25.NewClient(ctx, service); err == nil {
		err = v.seed(ctx)
	}
	if err != nil {
		model.Remove()
		return nil, err
	}
	return v, nil
}

var setDelays sync.Once

// Close waits for delayed requests and removes the files of the disks.
func (v *VSphere) Close() {
	v.late.Wait()
	v.model.Remove()
}

// seed creates the folders and the template.
func (v *VSphere) seed(ctx context.Context) error {
	root, err := v.vmFolder(ctx)
	if err != nil {
		return err
	}
	if _, err := root.CreateFolder(ctx, machinesFolder); err != nil {
		return err
	}
	folder, err := root.CreateFolder(ctx, templateFolder)
	if err != nil {
		return err
	}
	v.templates = folder.Reference()
	datastore := v.model.Map().Any("Datastore").(*simulator.Datastore)
	pool := v.pool()
	controller := &types.ParaVirtualSCSIController{VirtualSCSIController: types.VirtualSCSIController{
		SharedBus:         types.VirtualSCSISharingNoSharing,
		VirtualController: types.VirtualController{VirtualDevice: types.VirtualDevice{Key: 1000}},
	}}
	unit := int32(0)
	disk := &types.VirtualDisk{CapacityInKB: templateDiskGiB << 20, CapacityInBytes: templateDiskGiB << 30,
		VirtualDevice: types.VirtualDevice{Key: -1, ControllerKey: 1000, UnitNumber: &unit,
			Backing: &types.VirtualDiskFlatVer2BackingInfo{DiskMode: "persistent", ThinProvisioned: types.NewBool(true)}}}
	task, err := folder.CreateVM(ctx, types.VirtualMachineConfigSpec{
		Name: templateName, GuestId: string(types.VirtualMachineGuestOsIdentifierDebian12_64Guest), NumCPUs: 1,
		MemoryMB: 1024, Files: &types.VirtualMachineFileInfo{VmPathName: "[" + datastore.Name + "]"},
		DeviceChange: []types.BaseVirtualDeviceConfigSpec{
			&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: controller},
			&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: disk,
				FileOperation: types.VirtualDeviceConfigSpecFileOperationCreate},
		},
	}, pool, nil)
	if err != nil {
		return err
	}
	info, err := task.WaitForResult(ctx)
	if err != nil {
		return fmt.Errorf("create the template: %w", err)
	}
	vm := object.NewVirtualMachine(v.client, info.Result.(types.ManagedObjectReference))
	snapshot, err := vm.CreateSnapshot(ctx, "base", "for linked clones", false, false)
	if err != nil {
		return err
	}
	if err := snapshot.Wait(ctx); err != nil {
		return err
	}
	return vm.MarkAsTemplate(ctx)
}

func (v *VSphere) datacenter() *simulator.Datacenter {
	return v.model.Map().Any("Datacenter").(*simulator.Datacenter)
}

func (v *VSphere) pool() *object.ResourcePool {
	cluster := v.model.Map().Any("ClusterComputeResource").(*simulator.ClusterComputeResource)
	return object.NewResourcePool(v.client, *cluster.ResourcePool)
}

func (v *VSphere) vmFolder(ctx context.Context, path ...string) (*object.Folder, error) {
	index := object.NewSearchIndex(v.client)
	found, err := index.FindByInventoryPath(ctx, "/"+v.datacenter().Name+"/vm/"+strings.Join(path, "/"))
	if err != nil {
		return nil, err
	}
	folder, ok := found.(*object.Folder)
	if !ok {
		return nil, fmt.Errorf("there is no folder %q", path)
	}
	return folder, nil
}

// machines calls a function for each virtual machine that is not a template, with its lock.
func (v *VSphere) machines(do func(vm *simulator.VirtualMachine)) {
	m, ctx := v.model.Map(), simulator.NewContext()
	for _, entity := range m.All("VirtualMachine") {
		vm := entity.(*simulator.VirtualMachine)
		m.WithLock(ctx, vm, func() {
			if vm.Config != nil && !vm.Config.Template {
				do(vm)
			}
		})
	}
}

// Resources lists the virtual machines, their folders on the datastores, and their disks. Resources waits for running
// clones, because a clone creates these objects one after the other.
func (v *VSphere) Resources() (all []string, err error) {
	v.awaitClones()
	v.machines(func(vm *simulator.VirtualMachine) { all = append(all, "vm/"+vm.Name) })
	for _, entity := range v.model.Map().All("Datastore") {
		datastore := entity.(*simulator.Datastore)
		entries, err := os.ReadDir(datastore.Info.GetDatastoreInfo().Url)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Name() == templateName {
				continue
			}
			all = append(all, filepath.Join("folder", datastore.Name, e.Name()))
			disks, err := filepath.Glob(filepath.Join(datastore.Info.GetDatastoreInfo().Url, e.Name(), "*.vmdk"))
			if err != nil {
				return nil, err
			}
			for _, disk := range disks {
				all = append(all, filepath.Join("disk", datastore.Name, e.Name(), filepath.Base(disk)))
			}
		}
	}
	slices.Sort(all)
	return all, nil
}

func (v *VSphere) awaitClones() {
	v.mu.Lock()
	clones := v.clones
	v.clones = nil
	v.mu.Unlock()
	for _, task := range clones {
		task.Wait()
	}
}

// Created is the number of clones that were requested.
func (v *VSphere) Created() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.created
}

// Logins is the number of attempts to open a session.
func (v *VSphere) Logins() int64 { return v.logins.Load() }

// IsOn reports whether the virtual machine with a BIOS UUID is on.
func (v *VSphere) IsOn(biosUUID string) (on bool) {
	v.machines(func(vm *simulator.VirtualMachine) {
		if strings.EqualFold(vm.Config.Uuid, biosUUID) {
			on = vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn
		}
	})
	return on
}

// Extra returns the extra configuration of the virtual machine with a BIOS UUID.
func (v *VSphere) Extra(biosUUID string) map[string]string {
	all := map[string]string{}
	v.machines(func(vm *simulator.VirtualMachine) {
		if !strings.EqualFold(vm.Config.Uuid, biosUUID) {
			return
		}
		for _, o := range vm.Config.ExtraConfig {
			all[o.GetOptionValue().Key] = fmt.Sprint(o.GetOptionValue().Value)
		}
	})
	return all
}

// EndSessions ends all sessions, like a restart of vCenter.
func (v *VSphere) EndSessions(ctx context.Context) error {
	manager := *v.client.ServiceContent.SessionManager
	var read mo.SessionManager
	err := property.DefaultCollector(v.client).RetrieveOne(ctx, manager, []string{"sessionList"}, &read)
	if err != nil {
		return err
	}
	request := types.TerminateSession{This: manager}
	for _, s := range read.SessionList {
		request.SessionId = append(request.SessionId, s.Key)
	}
	_, err = methods.TerminateSession(ctx, v.client, &request)
	return err
}

// Launch clones the template like a user, and waits for the clone. A key of the extra configuration with the value
// InstanceUUID gets the instance UUID of the new virtual machine.
func (v *VSphere) Launch(ctx context.Context, name string, extra map[string]string) (biosUUID string, err error) {
	folder, err := v.vmFolder(ctx, machinesFolder)
	if err != nil {
		return "", err
	}
	found, err := object.NewSearchIndex(v.client).FindByInventoryPath(ctx,
		"/"+v.datacenter().Name+"/vm/"+templateFolder+"/"+templateName)
	if err != nil {
		return "", err
	}
	pool := v.pool().Reference()
	datastore := v.model.Map().Any("Datastore").Reference()
	task, err := found.(*object.VirtualMachine).Clone(ctx, folder, name, types.VirtualMachineCloneSpec{PowerOn: true,
		Location: types.VirtualMachineRelocateSpec{Pool: &pool, Datastore: &datastore}})
	if err != nil {
		return "", err
	}
	info, err := task.WaitForResult(ctx)
	if err != nil {
		return "", err
	}
	vm := object.NewVirtualMachine(v.client, info.Result.(types.ManagedObjectReference))
	var read mo.VirtualMachine
	if err := vm.Properties(ctx, vm.Reference(), []string{"config.uuid", "config.instanceUuid"}, &read); err != nil {
		return "", err
	}
	var options []types.BaseOptionValue
	for key, value := range extra {
		if value == InstanceUUID {
			value = read.Config.InstanceUuid
		}
		options = append(options, &types.OptionValue{Key: key, Value: value})
	}
	if task, err = vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{ExtraConfig: options}); err != nil {
		return "", err
	}
	return read.Config.Uuid, task.Wait(ctx)
}

// InstanceUUID is a placeholder in the extra configuration for Launch.
const InstanceUUID = "<instance UUID>"

// Find returns a client's virtual machine with a BIOS UUID, or nil.
func (v *VSphere) Find(ctx context.Context, biosUUID string) (*object.VirtualMachine, error) {
	found, err := object.NewSearchIndex(v.client).FindByUuid(ctx, nil, biosUUID, true, types.NewBool(false))
	if err != nil || found == nil {
		return nil, err
	}
	return found.(*object.VirtualMachine), nil
}

// Remove switches a virtual machine off and destroys it, if it exists.
func (v *VSphere) Remove(ctx context.Context, biosUUID string) error {
	vm, err := v.Find(ctx, biosUUID)
	if err != nil || vm == nil {
		return err
	}
	if task, err := vm.PowerOff(ctx); err == nil {
		_ = task.Wait(ctx) // It may be off.
	}
	task, err := vm.Destroy(ctx)
	if err != nil {
		return err
	}
	return task.Wait(ctx)
}

// UUIDs returns the BIOS UUIDs of the virtual machines whose extra configuration has a key.
func (v *VSphere) UUIDs(key string) (all []string) {
	v.machines(func(vm *simulator.VirtualMachine) {
		if slices.ContainsFunc(vm.Config.ExtraConfig,
			func(o types.BaseOptionValue) bool { return o.GetOptionValue().Key == key }) {
			all = append(all, vm.Config.Uuid)
		}
	})
	return all
}

// ClaimAddress lets the guests of all running virtual machines report an address.
func (v *VSphere) ClaimAddress(address string) error {
	v.machines(func(vm *simulator.VirtualMachine) {
		if vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
			v.setAddress(vm, address)
		}
	})
	return nil
}

// Copy clones a virtual machine like a user, with its extra configuration, and returns the BIOS UUID of the copy. vcsim
// does not copy the extra configuration itself.
func (v *VSphere) Copy(ctx context.Context, biosUUID, name string) (string, error) {
	extra := v.Extra(biosUUID)
	for key := range extra {
		if !strings.HasPrefix(key, "machinist.") {
			delete(extra, key)
		}
	}
	return v.Launch(ctx, name, extra)
}

// AttachVolume creates a disk in a folder of its own and attaches it, like a volume of a pod. It returns the path of
// the disk.
func (v *VSphere) AttachVolume(ctx context.Context, vm *object.VirtualMachine, name string) (path string, err error) {
	datastore := v.model.Map().Any("Datastore").(*simulator.Datastore)
	folder := filepath.Join(datastore.Info.GetDatastoreInfo().Url, "volumes")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	devices, err := vm.Device(ctx)
	if err != nil {
		return "", err
	}
	controller, err := devices.FindDiskController("")
	if err != nil {
		return "", err
	}
	disk := devices.CreateDisk(controller, datastore.Reference(), "["+datastore.Name+"] volumes/"+name+".vmdk")
	disk.CapacityInKB = 1 << 20
	return filepath.Join(folder, name+".vmdk"), vm.AddDevice(ctx, disk)
}

// FileExists reports whether a file of a datastore exists.
func (v *VSphere) FileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Hardware reads the hardware of a virtual machine.
func Hardware(ctx context.Context, vm *object.VirtualMachine) (types.VirtualHardware, error) {
	var read mo.VirtualMachine
	err := vm.Properties(ctx, vm.Reference(), []string{"config.hardware"}, &read)
	if err != nil {
		return types.VirtualHardware{}, err
	}
	return read.Config.Hardware, nil
}
