package driver

import (
	"cmp"
	"context"
	"slices"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/vsphere/machine"
)

// Get implements provider.Driver. If the request contains a provider ID, Get also returns a virtual machine of another
// owner.
func (d *Driver) Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
	s, err := d.sessionFor(req.Class, req.Scope)
	if err != nil {
		return nil, err
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	if req.ProviderID == "" {
		at, err := machine.ParseLocation(req.Class.Spec)
		if err != nil {
			return nil, err
		}
		return s.getByTags(ctx, at, own)
	}
	vm, err := s.getByID(ctx, req.ProviderID, req.Class)
	if err == nil {
		in, err := s.convertNew(ctx, vm)
		if err != nil || in.ClusterID != "" || in.MachineUID != "" {
			return in, err
		}
		running, err := s.cloneOf(ctx, own, in.ProviderID)
		if err != nil || running == nil {
			return in, err
		}
		return s.pendingInstance(own, running), nil
	}
	if !provider.IsNotFound(err) || req.CreateHandle == "" {
		return nil, err
	}
	in, err := s.followClone(ctx, own, req.ProviderID, req.CreateHandle)
	if !provider.IsNotFound(err) {
		return in, err
	}
	// The clone may have ended between the two reads.
	if vm, again := s.getByID(ctx, req.ProviderID, req.Class); again == nil {
		return s.convertNew(ctx, vm)
	}
	return nil, err
}

// cloneOf returns the running task that creates the owner's virtual machine with a provider ID, or nil.
func (s *session) cloneOf(ctx context.Context, own owner, id string) (*cloneTask, error) {
	all, err := s.cloneTasks(ctx, own)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if bios, _ := uuids(own.cluster, all[i].name); all[i].isRunning() && providerID(bios) == id {
			return &all[i], nil
		}
	}
	return nil, nil
}

// checkOwner returns nil if the instance has the tags of the owner. A clone gets its tags some time after its
// UUIDs. For
// such an instance, checkOwner returns Aborted, so that the caller tries again.
func (s *session) checkOwner(ctx context.Context, in *provider.Instance, own owner) error {
	err := in.OwnedBy(own.cluster, own.machine)
	if err == nil || in.ClusterID != "" || in.MachineUID != "" {
		return err
	}
	running, taskErr := s.cloneOf(ctx, own, in.ProviderID)
	if taskErr != nil {
		return taskErr
	}
	if running == nil {
		return err
	}
	return provider.Errorf(provider.Aborted, "virtual machine %s is being cloned and has no tags yet", in.ProviderID)
}

// followClone returns the instance whose clone is running. If the clone has failed, followClone returns NotFound with
// the reason.
func (s *session) followClone(ctx context.Context, own owner, id, handle string) (*provider.Instance, error) {
	t, err := s.task(ctx, types.ManagedObjectReference{Type: "Task", Value: handle})
	if err != nil && !provider.IsNotFound(err) {
		return nil, err
	}
	all, err := s.cloneTasks(ctx, own)
	if err != nil {
		return nil, err
	}
	if t.isRunning() {
		all = append([]cloneTask{t}, all...)
	}
	if running := runningClone(all); running != nil {
		in := s.pendingInstance(own, running)
		in.ProviderID = id
		return in, nil
	}
	absent := provider.Errorf(provider.NotFound, "virtual machine %s does not exist", id)
	if t.state == types.TaskInfoStateError && t.fault != nil {
		var why string
		absent.CreateCode, why = classify(t.fault)
		absent.Message = "clone virtual machine " + id + ": " + why
	}
	return nil, absent
}

// getByTags finds the owner's virtual machine in the folder of the class, or the task that creates it.
func (s *session) getByTags(ctx context.Context, at machine.Location, own owner) (*provider.Instance, error) {
	// Tasks are read first: a clone that ends between the two reads is in the folder.
	tasks, err := s.cloneTasks(ctx, own)
	if err != nil {
		return nil, err
	}
	all, err := s.machinesOf(ctx, at, own)
	if err != nil {
		return nil, err
	}
	if best := preferred(all); best != nil {
		return s.convertNew(ctx, best)
	}
	if running := runningClone(tasks); running != nil {
		return s.pendingInstance(own, running), nil
	}
	return nil, provider.Errorf(provider.NotFound, "no virtual machine belongs to machine %s of cluster %q",
		own.machine.UID, own.cluster)
}

// machinesOf returns the owner's virtual machines in the folder of the class.
func (s *session) machinesOf(ctx context.Context, at machine.Location, own owner) ([]*virtualMachine, error) {
	all, err := s.machinesIn(ctx, at)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(vm *virtualMachine) bool {
		return s.convert(vm).OwnedBy(own.cluster, own.machine) != nil
	}), nil
}

// machinesIn returns all virtual machines in the folder of the class and its subfolders.
func (s *session) machinesIn(ctx context.Context, at machine.Location) ([]*virtualMachine, error) {
	folder, err := s.folder(ctx, at)
	if err != nil {
		return nil, err
	}
	children := pathTo("Folder", "childEntity", &types.SelectionSpec{Name: "children"})
	children.Name = "children"
	all, err := s.retrieve(ctx, "list virtual machines", []types.ObjectSpec{{Obj: folder, Skip: types.NewBool(true),
		SelectSet: []types.BaseSelectionSpec{children}}},
		types.PropertySpec{Type: "VirtualMachine", PathSet: vmProperties()})
	if err != nil {
		return nil, asCreateError(err, "list virtual machines")
	}
	var found []*virtualMachine
	for _, o := range all {
		if vm := vmOf(o); vm != nil {
			found = append(found, vm)
		}
	}
	return found, nil
}

// getByID reads the virtual machine with a provider ID.
func (s *session) getByID(ctx context.Context, id string, class provider.Class) (*virtualMachine, error) {
	bios, err := parseProviderID(id)
	if err != nil {
		return nil, err
	}
	vm, err := s.byUUID(ctx, bios, false)
	if err != nil || vm != nil {
		return vm, err
	}
	// To a user without privileges, vCenter shows no virtual machines. Make sure that it shows the folder.
	if at, err := machine.ParseLocation(class.Spec); err == nil && at.VCenter == s.vcenter {
		if _, err := s.folder(ctx, at); err != nil {
			return nil, err
		}
	}
	return nil, provider.Errorf(provider.NotFound, "virtual machine %s does not exist", id)
}

// byUUID finds a virtual machine by its BIOS UUID or its instance UUID. Without one, byUUID returns nil. If a copy has
// the same BIOS UUID, byUUID prefers the virtual machine with the tags.
func (s *session) byUUID(ctx context.Context, uuid string, instance bool) (*virtualMachine, error) {
	content, err := s.content(ctx)
	if err != nil {
		return nil, err
	}
	answer, err := methods.FindAllByUuid(ctx, s, &types.FindAllByUuid{This: *content.SearchIndex, Uuid: uuid,
		VmSearch: true, InstanceUuid: &instance})
	if err != nil {
		return nil, translate(ctx, err, "find virtual machine "+uuid)
	}
	var best *virtualMachine
	for _, ref := range answer.Returnval {
		o, err := s.read(ctx, "get virtual machine "+uuid, ref, vmProperties()...)
		if provider.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if vm := vmOf(o); vm != nil && (best == nil || vm.isTagged() && !best.isTagged()) {
			best = vm
		}
	}
	return best, nil
}

// preferred returns the preferred one of several virtual machines of a machine: first one that is on, then one that is
// off, then one that is being deleted. Without a virtual machine, it returns nil.
func preferred(all []*virtualMachine) *virtualMachine {
	rank := func(vm *virtualMachine) int {
		switch {
		case vm.extra[keyDeleting] != "":
			return 2
		case vm.isOff():
			return 1
		}
		return 0
	}
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b *virtualMachine) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.uuid, b.uuid))
	})
}

// hasRun reports whether vCenter has an event for the start of the virtual machine.
func (s *session) hasRun(ctx context.Context, vm *virtualMachine) (bool, error) {
	content, err := s.content(ctx)
	if err != nil {
		return false, err
	}
	answer, err := methods.QueryEvents(ctx, s, &types.QueryEvents{This: *content.EventManager,
		Filter: types.EventFilterSpec{
			Entity:      &types.EventFilterSpecByEntity{Entity: vm.ref, Recursion: types.EventFilterSpecRecursionOptionSelf},
			EventTypeId: []string{"VmPoweredOnEvent", "DrsVmPoweredOnEvent"},
		}})
	if err != nil {
		return false, translate(ctx, err, "list events of virtual machine "+vm.name)
	}
	return len(answer.Returnval) > 0, nil
}
