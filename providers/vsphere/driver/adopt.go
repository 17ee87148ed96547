package driver

import (
	"context"
	"maps"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/vsphere/machine"
)

// Adopt implements provider.Adopter. The extra configuration of the virtual machine must contain
// machinist.adoptable=true. Otherwise, every user who may create Machines could delete any virtual machine that the
// credentials reach. This entry is unnecessary if the virtual machine has the tags of the former identity, and List
// returns it for the class.
func (d *Driver) Adopt(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	s, err := d.session(req.Class.Credentials, spec.VCenter)
	if err != nil {
		return nil, err
	}
	vm, err := s.getByID(ctx, req.ProviderID, req.Class)
	if err != nil {
		return nil, err
	}
	in := s.convert(vm)
	replaces := req.Replaces(in)
	isOwn := in.OwnedBy(own.cluster, own.machine) == nil
	if !replaces && !isOwn && (in.ClusterID != "" && in.ClusterID != own.cluster ||
		in.MachineUID != "" && in.MachineUID != own.machine.UID) {
		return nil, in.OwnedBy(own.cluster, own.machine)
	}
	if !isOwn && vm.extra[keyAdoptable] != "true" {
		listed := false
		if replaces {
			if listed, err = s.lists(ctx, spec, vm); err != nil {
				return nil, err
			}
		}
		if !listed {
			return nil, provider.Errorf(provider.FailedPrecondition,
				"virtual machine %s lacks the extra configuration %s=true: "+
					"set it to allow the adoption: govc vm.change -vm.uuid %s -e %s=true", vm.name, keyAdoptable, vm.bios, keyAdoptable)
		}
	}
	o, err := s.read(ctx, "get virtual machine "+vm.name, vm.ref, "config.hardware.device", "config.changeVersion")
	if err != nil {
		return nil, err
	}
	changes := own.tags(vm.uuid)
	maps.Copy(changes, map[string]string{keySpec: specHash(spec), keyRegion: spec.Region, keyZone: spec.Zone})
	if vm.extra[keyDisks] == "" || !vm.isTagged() {
		changes[keyDisks] = disksToDelete(valueOf[types.ArrayOfVirtualDevice](o, "config.hardware.device").VirtualDevice)
	}
	if !vm.isTagged() {
		// The virtual machine may be a copy of one of Machinist's virtual machines. An empty value removes a key.
		maps.Copy(changes, map[string]string{keyNew: "", keyDeleting: "", keyUpdate: "", keyVersion: ""})
	}
	maps.DeleteFunc(changes, func(key, value string) bool { return vm.extra[key] == value })
	if len(changes) > 0 {
		// vCenter refuses the change if the configuration has changed since the read.
		done, err := s.reconfigure(ctx, vm, types.VirtualMachineConfigSpec{ExtraConfig: options(changes),
			ChangeVersion: textOf(o, "config.changeVersion")})
		if err != nil {
			return nil, err
		}
		if !done {
			return nil, provider.Errorf(provider.DeadlineExceeded, "adopt virtual machine %s: vCenter has not set the tags yet",
				vm.name)
		}
	}
	if vm, err = s.getByID(ctx, req.ProviderID, req.Class); err != nil {
		return nil, err
	}
	return s.convert(vm), nil
}

// lists reports whether List returns a virtual machine for the class.
func (s *session) lists(ctx context.Context, spec machine.Spec, vm *virtualMachine) (bool, error) {
	all, err := s.machinesIn(ctx, spec.Location())
	if err != nil {
		return false, err
	}
	for _, other := range all {
		if other.ref == vm.ref {
			return true, nil
		}
	}
	return false, nil
}

// disksToDelete returns the value of keyDisks for an adopted virtual machine: all disks except volumes of the CSI
// driver.
func disksToDelete(devices []types.BaseVirtualDevice) string {
	var places []string
	for _, d := range disksIn(devices) {
		if d.VDiskId == nil {
			places = append(places, placeOf(d))
		}
	}
	return strings.Join(places, ",")
}
