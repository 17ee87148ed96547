package driver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/vsphere/machine"
)

// maxShutdown is how long Update waits for the guest to shut down before it switches the virtual machine off.
const maxShutdown = 3 * time.Minute

// Update implements provider.Driver. Disks grow, and region and zone change, while the virtual machine runs. CPUs and
// memory grow in a running virtual machine if its template allows this (hot add). Otherwise the driver switches the
// drained virtual machine off and on. All other changes require another virtual machine.
func (d *Driver) Update(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	s, err := d.sessionFor(req.Class, req.Scope)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	vm, err := s.getByID(ctx, req.ProviderID, req.Class)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	in := s.convert(vm)
	if err := s.checkOwner(ctx, in, own); err != nil {
		return provider.UpdateResult{}, err
	}
	if in.State == provider.StateTerminating {
		return provider.UpdateResult{}, provider.Errorf(provider.Aborted,
			"update virtual machine %s: it is being deleted", vm.name)
	}
	o, err := s.read(ctx, "get virtual machine "+vm.name, vm.ref, "config.hardware.device", "config.cpuHotAddEnabled",
		"config.memoryHotAddEnabled", "config.changeVersion")
	if err != nil {
		return provider.UpdateResult{}, err
	}
	change, reason := planUpdate(vm, o, spec, req.Version)
	if reason != "" {
		return provider.UpdateResult{Outcome: provider.UpdateNeedsReplacement, Reason: reason, Instance: in}, nil
	}
	outcome, err := s.update(ctx, vm, change, req.NodeDrained)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	if outcome == provider.UpdateDone {
		if vm, err = s.getByID(ctx, req.ProviderID, req.Class); err != nil {
			return provider.UpdateResult{}, err
		}
		in = s.convert(vm)
	}
	return provider.UpdateResult{Outcome: outcome, Instance: in}, nil
}

// change is how a virtual machine differs from its specification.
type change struct {
	spec types.VirtualMachineConfigSpec
	// isEmpty is true if nothing differs.
	isEmpty bool
	// needsOff is true if vCenter makes the change only while the virtual machine is off.
	needsOff bool
}

// planUpdate compares a virtual machine with its specification. The reason is not empty if the change requires another
// virtual machine.
func planUpdate(vm *virtualMachine, o object, spec machine.Spec, version string) (c change, reason string) {
	hash, installed := vm.extra[keySpec], vm.extra[keyVersion]
	switch {
	case hash != "" && hash != specHash(spec):
		return c, "only cpus, memoryMiB, region, zone and the sizes of disks of a virtual machine can change in place"
	case version != "" && installed != "" && version != installed:
		return c, fmt.Sprintf("the kubelet was installed with version %.64s, but version %.64s is wanted", installed, version)
	}
	if spec.CPUs != vm.cpus {
		c.spec.NumCPUs = spec.CPUs
		c.needsOff = spec.CPUs < vm.cpus || !valueOf[bool](o, "config.cpuHotAddEnabled")
	}
	if spec.MemoryMiB != int64(vm.memoryMiB) {
		c.spec.MemoryMB = spec.MemoryMiB
		c.needsOff = c.needsOff || spec.MemoryMiB < int64(vm.memoryMiB) || !valueOf[bool](o, "config.memoryHotAddEnabled")
	}
	if c.spec.DeviceChange, reason = growDisks(vm, o, spec); reason != "" {
		return c, reason
	}
	labels := map[string]string{keyRegion: spec.Region, keyZone: spec.Zone}
	for key, value := range labels {
		if vm.extra[key] == value {
			delete(labels, key)
		}
	}
	c.spec.ExtraConfig = options(labels)
	c.isEmpty = c.spec.NumCPUs == 0 && c.spec.MemoryMB == 0 && len(c.spec.DeviceChange) == 0 && len(labels) == 0
	c.spec.ChangeVersion = textOf(o, "config.changeVersion")
	return c, ""
}

// growDisks returns the changes of the disks that are smaller than the specification. The first own disk is the root
// disk. The last ones are the disks of the specification.
func growDisks(vm *virtualMachine, o object, spec machine.Spec) (changes []types.BaseVirtualDeviceConfigSpec,
	reason string) {
	own := strings.Split(vm.extra[keyDisks], ",")
	all := disksIn(valueOf[types.ArrayOfVirtualDevice](o, "config.hardware.device").VirtualDevice)
	disks := make([]*types.VirtualDisk, 0, len(own))
	for _, place := range own {
		i := slices.IndexFunc(all, func(d *types.VirtualDisk) bool { return placeOf(d) == place && d.VDiskId == nil })
		if i < 0 {
			return nil, ""
		}
		disks = append(disks, all[i])
	}
	grow := func(field string, d *types.VirtualDisk, sizeGiB int32) {
		switch want := int64(sizeGiB) * gib; {
		case want == 0 || want == capacityOf(d):
		case want < capacityOf(d):
			reason = field + " is smaller than before, and disks cannot shrink"
		default:
			changes = append(changes, edit(withCapacity(d, want)))
		}
	}
	grow("rootDiskGiB", disks[0], spec.RootDiskGiB)
	if first := len(disks) - len(spec.Disks); first > 0 {
		for i, d := range spec.Disks {
			grow(fmt.Sprintf("disks[%d].sizeGiB", i), disks[first+i], d.SizeGiB)
		}
	}
	return changes, reason
}

// update makes the next step of a change. A virtual machine that the driver has switched off for a change has
// keyUpdate.
func (s *session) update(ctx context.Context, vm *virtualMachine, c change, drained bool) (provider.UpdateOutcome,
	error) {
	since, offForUpdate := updateSince(vm)
	isOn := !vm.isOff()
	switch {
	case c.isEmpty && offForUpdate && !isOn:
		err := s.powerOn(ctx, vm)
		return provider.UpdateInProgress, err
	case c.isEmpty && offForUpdate:
		done, err := s.reconfigure(ctx, vm, types.VirtualMachineConfigSpec{ExtraConfig: options(map[string]string{
			keyUpdate: ""})})
		return outcomeOf(done), err
	case c.isEmpty:
		return provider.UpdateDone, nil
	case isOn && c.needsOff && !drained && !offForUpdate:
		return provider.UpdateNeedsDrain, nil
	case isOn && c.needsOff && !offForUpdate:
		_, err := s.reconfigure(ctx, vm, types.VirtualMachineConfigSpec{ExtraConfig: options(map[string]string{
			keyUpdate: time.Now().UTC().Format(time.RFC3339), keyNew: ""})})
		return provider.UpdateInProgress, err
	case isOn && c.needsOff && time.Since(since) < maxShutdown:
		return provider.UpdateInProgress, s.shutDown(ctx, vm)
	case isOn && c.needsOff:
		_, err := s.powerOff(ctx, vm)
		return provider.UpdateInProgress, err
	}
	done, err := s.reconfigure(ctx, vm, c.spec)
	if offForUpdate {
		done = false
	}
	return outcomeOf(done), err
}

func outcomeOf(done bool) provider.UpdateOutcome {
	if done {
		return provider.UpdateDone
	}
	return provider.UpdateInProgress
}

// updateSince returns the time since when the driver changes a virtual machine that has to be off for it.
func updateSince(vm *virtualMachine) (since time.Time, ok bool) {
	text := vm.extra[keyUpdate]
	since, _ = time.Parse(time.RFC3339, text)
	return since, text != ""
}
