package driver

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/naming"
	"machinist.dev/machinist/providers/vsphere/machine"
)

// Create implements provider.Driver. Create starts the clone of the template, and does not wait for it.
func (d *Driver) Create(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	s, err := d.session(req.Class.Credentials, spec.VCenter)
	if err != nil {
		return nil, err
	}
	name := naming.Instance(req.ClusterID, req.Machine, req.Token)
	extra, err := extraConfig(spec, own, name, req)
	if err != nil {
		return nil, err
	}
	if _, busy := d.creating.LoadOrStore(name, true); busy {
		return nil, provider.Errorf(provider.Aborted, "create virtual machine %s: another call is creating it", name)
	}
	defer d.creating.Delete(name)
	in, err := s.findExisting(ctx, spec, own, name, naming.IsFirst(req.Machine, req.Token))
	if provider.IsNotFound(err) {
		in, err = s.clone(ctx, spec, own, name, extra)
	}
	if err != nil {
		return nil, err
	}
	if err := s.checkOwner(ctx, in, own); err != nil {
		return nil, err
	}
	if in.State == provider.StateTerminating {
		return nil, provider.Errorf(provider.AlreadyExists,
			"create virtual machine %s: the existing one is being deleted", name)
	}
	return in, nil
}

// findExisting finds what an earlier call has created: a virtual machine with the derived UUID, a running clone, or the
// virtual machine of an earlier attempt.
func (s *session) findExisting(ctx context.Context, spec machine.Spec, own owner, name string, first bool) (
	*provider.Instance, error) {
	_, uuid := uuids(own.cluster, name)
	tasks, err := s.cloneTasks(ctx, own)
	if err != nil {
		return nil, err
	}
	vm, err := s.byUUID(ctx, uuid, true)
	if err != nil {
		return nil, err
	}
	if vm != nil {
		return s.convertNew(ctx, vm)
	}
	if running := runningClone(tasks); running != nil {
		return s.pendingInstance(own, running), nil
	}
	if !first {
		all, err := s.machinesOf(ctx, spec.Location(), own)
		if err != nil {
			return nil, err
		}
		if best := preferred(all); best != nil && best.extra[keyDeleting] == "" {
			return s.convertNew(ctx, best)
		}
	}
	return nil, provider.Errorf(provider.NotFound, "no virtual machine belongs to machine %s", own.machine.UID)
}

// extraConfig returns the extra configuration of a new virtual machine, without the key for its disks.
func extraConfig(spec machine.Spec, own owner, name string, req provider.CreateRequest) (map[string]string, error) {
	all, err := guestVariables(name, req.UserData.Reveal())
	if err != nil {
		return nil, err
	}
	_, uuid := uuids(own.cluster, name)
	maps.Copy(all, own.tags(uuid))
	// The template may be a copy of one of Machinist's virtual machines. An empty value removes a key.
	maps.Copy(all, map[string]string{keySpec: specHash(spec), keyVersion: req.Version, keyRegion: spec.Region,
		keyZone: spec.Zone, keyNew: "true", keyDeleting: "", keyUpdate: "", keyAdoptable: ""})
	return all, nil
}

func options(values map[string]string) []types.BaseOptionValue {
	var all []types.BaseOptionValue
	for _, key := range slices.Sorted(maps.Keys(values)) {
		all = append(all, &types.OptionValue{Key: key, Value: values[key]})
	}
	return all
}

// clone starts the clone of the template.
// https://developer.broadcom.com/xapis/vsphere-web-services-api/latest/vim.VirtualMachine.html#clone
func (s *session) clone(ctx context.Context, spec machine.Spec, own owner, name string, extra map[string]string) (
	*provider.Instance, error) {
	p, err := s.resolve(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := s.checkName(ctx, p.folder, name); err != nil {
		return nil, err
	}
	template, err := s.read(ctx, "get template "+spec.Template, p.template, "config.hardware.device", "snapshot")
	if err != nil {
		return nil, asCreateError(err, "get template "+spec.Template)
	}
	devices := valueOf[types.ArrayOfVirtualDevice](template, "config.hardware.device").VirtualDevice
	changes, disks, err := s.deviceChanges(ctx, spec, p, devices)
	if err != nil {
		return nil, err
	}
	extra[keyDisks] = disks
	bios, uuid := uuids(own.cluster, name)
	request := types.VirtualMachineCloneSpec{
		PowerOn:  true,
		Location: types.VirtualMachineRelocateSpec{Pool: &p.pool, Datastore: p.datastore},
		Config: &types.VirtualMachineConfigSpec{
			Uuid: bios, InstanceUuid: uuid, NumCPUs: spec.CPUs, MemoryMB: spec.MemoryMiB, ExtraConfig: options(extra),
			DeviceChange: changes,
			Annotation:   fmt.Sprintf("Machine %s/%s of cluster %s (Machinist)", own.machine.Namespace, own.machine.Name, own.cluster),
		},
	}
	if spec.CoresPerSocket > 0 {
		request.Config.NumCoresPerSocket = &spec.CoresPerSocket
	}
	if len(spec.VGPUProfiles)+len(spec.PCIDevices) > 0 {
		// A device of the host needs the whole memory of the virtual machine.
		request.Config.MemoryReservationLockedToMax = types.NewBool(true)
	}
	if spec.LinkedClone {
		snapshot := valueOf[types.VirtualMachineSnapshotInfo](template, "snapshot").CurrentSnapshot
		if snapshot == nil {
			return nil, missing("template", "the template %.256q has no snapshot, which a linked clone requires", spec.Template)
		}
		request.Snapshot = snapshot
		request.Location.DiskMoveType = string(types.VirtualMachineRelocateDiskMoveOptionsCreateNewChildDiskBacking)
	}
	if p.datastoreCluster != nil {
		if request.Location.Datastore, err = s.recommendDatastore(ctx, p, name, request); err != nil {
			return nil, err
		}
	}
	attempted := "clone template " + spec.Template + " to virtual machine " + name
	answer, err := methods.CloneVM_Task(context.WithValue(ctx, types.ID{}, operationID(name)), s, &types.CloneVM_Task{
		This: p.template, Folder: p.folder, Name: name, Spec: request})
	if err != nil {
		return nil, asCreateError(translate(ctx, err, attempted), attempted)
	}
	in := s.pendingInstance(own, &cloneTask{ref: answer.Returnval, name: name})
	return in, nil
}

// checkName returns AlreadyExists if a virtual machine of another owner has the name, so that the clone would fail.
func (s *session) checkName(ctx context.Context, folder types.ManagedObjectReference, name string) error {
	content, err := s.content(ctx)
	if err != nil {
		return err
	}
	attempted := "find the name " + name
	answer, err := methods.FindChild(ctx, s, &types.FindChild{This: *content.SearchIndex, Entity: folder, Name: name})
	if err != nil {
		return asCreateError(translate(ctx, err, attempted), attempted)
	}
	if answer.Returnval != nil {
		return provider.Errorf(provider.AlreadyExists, "the folder already contains another object with the name %s", name)
	}
	return nil
}

// recommendDatastore asks vCenter for a datastore of a cluster.
func (s *session) recommendDatastore(ctx context.Context, p placement, name string,
	request types.VirtualMachineCloneSpec) (*types.ManagedObjectReference, error) {
	content, err := s.content(ctx)
	if err != nil {
		return nil, err
	}
	attempted := "get a recommendation for a datastore"
	if content.StorageResourceManager == nil {
		return nil, missing("datastoreCluster", "vCenter %s has no datastore clusters", s.vcenter)
	}
	answer, err := methods.RecommendDatastores(ctx, s, &types.RecommendDatastores{This: *content.StorageResourceManager,
		StorageSpec: types.StoragePlacementSpec{Type: string(types.StoragePlacementSpecPlacementTypeClone), Vm: &p.template,
			CloneName: name, CloneSpec: &request, Folder: &p.folder,
			PodSelectionSpec: types.StorageDrsPodSelectionSpec{StoragePod: p.datastoreCluster,
				InitialVmConfig: []types.VmPodConfigForPlacement{{StoragePod: *p.datastoreCluster}}}}})
	if err != nil {
		return nil, asCreateError(translate(ctx, err, attempted), attempted)
	}
	for _, r := range answer.Returnval.Recommendations {
		for _, action := range r.Action {
			if a, ok := action.(*types.StoragePlacementAction); ok {
				return &a.Destination, nil
			}
		}
	}
	return nil, provider.Errorf(provider.ResourceExhausted, "%s: no datastore of the cluster has room", attempted)
}
