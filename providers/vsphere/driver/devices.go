package driver

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/vsphere/machine"
)

// newDeviceKey is the first key of new devices in a request. vCenter replaces negative keys.
const newDeviceKey = -200

// thin is the provisioning of new disks: their space is allocated when it is used.
var thin = types.NewBool(true)

const gib = int64(1) << 30

func add(d types.BaseVirtualDevice,
	files types.VirtualDeviceConfigSpecFileOperation) types.BaseVirtualDeviceConfigSpec {
	return &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: d,
		FileOperation: files}
}

func edit(d types.BaseVirtualDevice) types.BaseVirtualDeviceConfigSpec {
	return &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: d}
}

func remove(d types.BaseVirtualDevice) types.BaseVirtualDeviceConfigSpec {
	return &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationRemove, Device: d}
}

// disksIn returns the disks of a virtual machine, sorted by their keys.
func disksIn(devices []types.BaseVirtualDevice) []*types.VirtualDisk {
	var all []*types.VirtualDisk
	for _, d := range devices {
		if disk, ok := d.(*types.VirtualDisk); ok {
			all = append(all, disk)
		}
	}
	slices.SortFunc(all, func(a, b *types.VirtualDisk) int { return int(a.Key) - int(b.Key) })
	return all
}

// capacityOf returns the size of a disk in bytes. Old versions of vCenter report only KiB.
func capacityOf(d *types.VirtualDisk) int64 {
	if d.CapacityInBytes > 0 {
		return d.CapacityInBytes
	}
	return d.CapacityInKB << 10
}

func withCapacity(d *types.VirtualDisk, bytes int64) *types.VirtualDisk {
	changed := *d
	changed.CapacityInBytes, changed.CapacityInKB = bytes, bytes>>10
	return &changed
}

// deviceChanges returns the changes of the template's devices for a new virtual machine, and the value of keyDisks. The
// disks of the clone have the same controller and unit number as those of the template.
func (s *session) deviceChanges(ctx context.Context, spec machine.Spec, p placement,
	devices []types.BaseVirtualDevice) (
	changes []types.BaseVirtualDeviceConfigSpec, keys string, err error) {
	disks := disksIn(devices)
	if len(disks) == 0 {
		return nil, "", missing("template", "the template %.256q has no disk", spec.Template)
	}
	if want := int64(spec.RootDiskGiB) * gib; want > 0 && want != capacityOf(disks[0]) {
		if want < capacityOf(disks[0]) {
			return nil, "", missing("rootDiskGiB", "the disk of the template has %d GiB and cannot shrink to %d GiB",
				(capacityOf(disks[0])+gib-1)/gib, spec.RootDiskGiB)
		}
		changes = append(changes, edit(withCapacity(disks[0], want)))
	}
	places := []string{}
	for _, d := range disks {
		places = append(places, placeOf(d))
	}
	next := int32(newDeviceKey)
	for _, d := range spec.Disks {
		unit, ok := freeUnit(devices, disks[0].ControllerKey, changes)
		if !ok {
			return nil, "", missing("disks", "the controller of the template's disk has no free place")
		}
		next--
		disk := withCapacity(&types.VirtualDisk{VirtualDevice: types.VirtualDevice{Key: next,
			ControllerKey: disks[0].ControllerKey, UnitNumber: &unit,
			Backing: &types.VirtualDiskFlatVer2BackingInfo{DiskMode: string(types.VirtualDiskModePersistent),
				ThinProvisioned: thin}}}, int64(d.SizeGiB)*gib)
		changes = append(changes, add(disk, types.VirtualDeviceConfigSpecFileOperationCreate))
		places = append(places, placeOf(disk))
	}
	for _, d := range devices {
		if _, ok := d.(types.BaseVirtualEthernetCard); ok {
			changes = append(changes, remove(d))
		}
	}
	for i, n := range spec.Networks {
		next--
		card, err := s.networkCard(ctx, n, p.networks[i], next)
		if err != nil {
			return nil, "", err
		}
		changes = append(changes, add(card, ""))
	}
	for _, profile := range spec.VGPUProfiles {
		next--
		changes = append(changes, add(&types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{Key: next,
			Backing: &types.VirtualPCIPassthroughVmiopBackingInfo{Vgpu: profile}}}, ""))
	}
	for _, d := range spec.PCIDevices {
		next--
		changes = append(changes, add(&types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{Key: next,
			Backing: &types.VirtualPCIPassthroughDynamicBackingInfo{AllowedDevice: []types.VirtualPCIPassthroughAllowedDevice{
				{VendorId: d.VendorID, DeviceId: d.DeviceID}}}}}, ""))
	}
	return changes, strings.Join(places, ","), nil
}

// placeOf identifies a disk of a virtual machine. vCenter derives the key of a disk from this place.
func placeOf(d *types.VirtualDisk) string {
	unit := int32(-1)
	if d.UnitNumber != nil {
		unit = *d.UnitNumber
	}
	return strconv.Itoa(int(d.ControllerKey)) + ":" + strconv.Itoa(int(unit))
}

// reservedUnit is the place of the SCSI controller itself.
const (
	reservedUnit = 7
	maxUnits     = 16
)

// freeUnit returns the first free place on a controller, also without the disks that the changes add.
func freeUnit(devices []types.BaseVirtualDevice, controller int32, changes []types.BaseVirtualDeviceConfigSpec) (int32,
	bool) {
	used := map[int32]bool{reservedUnit: true}
	mark := func(d *types.VirtualDevice) {
		if d.ControllerKey == controller && d.UnitNumber != nil {
			used[*d.UnitNumber] = true
		}
	}
	for _, d := range devices {
		mark(d.GetVirtualDevice())
	}
	for _, c := range changes {
		mark(c.GetVirtualDeviceConfigSpec().Device.GetVirtualDevice())
	}
	for unit := range int32(maxUnits) {
		if !used[unit] {
			return unit, true
		}
	}
	return 0, false
}

// networkCard returns a new network adapter.
func (s *session) networkCard(ctx context.Context, n machine.Network, ref types.ManagedObjectReference, key int32) (
	types.BaseVirtualDevice, error) {
	backing, err := s.networkBacking(ctx, n.Path, ref)
	if err != nil {
		return nil, err
	}
	card := types.VirtualEthernetCard{AddressType: string(types.VirtualEthernetCardMacTypeGenerated),
		VirtualDevice: types.VirtualDevice{Key: key, Backing: backing,
			Connectable: &types.VirtualDeviceConnectInfo{StartConnected: true, AllowGuestControl: true, Connected: true}}}
	switch n.Adapter {
	case "e1000e":
		return &types.VirtualE1000e{VirtualEthernetCard: card}, nil
	case "sriov":
		return &types.VirtualSriovEthernetCard{VirtualEthernetCard: card}, nil
	}
	return &types.VirtualVmxnet3{VirtualVmxnet: types.VirtualVmxnet{VirtualEthernetCard: card}}, nil
}

func (s *session) networkBacking(ctx context.Context, path string, ref types.ManagedObjectReference) (
	types.BaseVirtualDeviceBackingInfo, error) {
	attempted := "get network " + path
	switch ref.Type {
	case "DistributedVirtualPortgroup":
		group, err := s.read(ctx, attempted, ref, "key", "config.distributedVirtualSwitch")
		if err != nil {
			return nil, asCreateError(err, attempted)
		}
		on, ok := group.props["config.distributedVirtualSwitch"].(types.ManagedObjectReference)
		if !ok {
			return nil, provider.Errorf(provider.PermissionDenied,
				"%s: the user lacks the privilege System.Read on the switch of the port group", attempted)
		}
		vds, err := s.read(ctx, attempted, on, "uuid")
		if err != nil {
			return nil, asCreateError(err, attempted)
		}
		return &types.VirtualEthernetCardDistributedVirtualPortBackingInfo{Port: types.DistributedVirtualSwitchPortConnection{
			PortgroupKey: textOf(group, "key"), SwitchUuid: textOf(vds, "uuid")}}, nil
	case "OpaqueNetwork":
		network, err := s.read(ctx, attempted, ref, "summary")
		if err != nil {
			return nil, asCreateError(err, attempted)
		}
		summary := valueOf[types.OpaqueNetworkSummary](network, "summary")
		return &types.VirtualEthernetCardOpaqueNetworkBackingInfo{OpaqueNetworkId: summary.OpaqueNetworkId,
			OpaqueNetworkType: summary.OpaqueNetworkType}, nil
	}
	network, err := s.read(ctx, attempted, ref, "name")
	if err != nil {
		return nil, asCreateError(err, attempted)
	}
	device := types.VirtualDeviceDeviceBackingInfo{DeviceName: textOf(network, "name")}
	return &types.VirtualEthernetCardNetworkBackingInfo{VirtualDeviceDeviceBackingInfo: device, Network: &ref}, nil
}
