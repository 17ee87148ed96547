package driver

import (
	"context"
	"maps"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"

	"machinist.dev/machinist/pkg/provider"
)

// Release implements provider.Importer. Release removes the tags of the virtual machine last. If the virtual machine
// has none of these tags, Release has also removed them from all interfaces and disks.
func (d *Driver) Release(ctx context.Context, req provider.ReleaseRequest) error {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return err
	}
	c, err := d.clients(req.Class.Credentials)
	if err != nil {
		return err
	}
	at, err := c.locate(req.ProviderID)
	if err != nil {
		return err
	}
	return retryOnConflict(func() error {
		vm, err := c.get(ctx, at)
		if err != nil {
			return err
		}
		in, err := c.convert(vm)
		if err != nil {
			return err
		}
		if err := in.OwnedBy(own.cluster, own.machine); err != nil {
			return err
		}
		if err := c.releaseParts(ctx, vm); err != nil {
			return err
		}
		if !hasRoleTag(vm.Tags) {
			return nil
		}
		return c.changeVM(ctx, at, vm, armcompute.VirtualMachineUpdate{Tags: withoutRoleTags(vm.Tags)})
	})
}

// releaseParts removes the collector's tags from interfaces and disks, but not from volumes of pods, which the old
// system does not manage. Azure has no conditional update of these tags, so each change immediately follows a read.
func (c *clients) releaseParts(ctx context.Context, vm *armcompute.VirtualMachine) error {
	for _, id := range interfacesOf(vm) {
		n, err := c.interfaces.Get(ctx, id.ResourceGroupName, id.Name, nil)
		if err == nil && hasRoleTag(n.Tags) {
			_, err = c.interfaces.UpdateTags(ctx, id.ResourceGroupName, id.Name,
				armnetwork.TagsObject{Tags: withoutRoleTags(n.Tags)}, nil)
		}
		if err != nil && !isAbsent(err) {
			return translate(ctx, err, "tag network interface "+id.Name)
		}
	}
	for _, id := range disksOf(vm) {
		disk, err := c.disks.Get(ctx, id.ResourceGroupName, id.Name, nil)
		if err == nil && hasRoleTag(disk.Tags) {
			_, err = c.disks.BeginUpdate(ctx, id.ResourceGroupName, id.Name,
				armcompute.DiskUpdate{Tags: withoutRoleTags(disk.Tags)}, nil)
		}
		if err != nil && !isAbsent(err) {
			return translate(ctx, err, "tag disk "+id.Name)
		}
	}
	return nil
}

func interfacesOf(vm *armcompute.VirtualMachine) (all []*arm.ResourceID) {
	if vm.Properties == nil || vm.Properties.NetworkProfile == nil {
		return nil
	}
	for _, reference := range vm.Properties.NetworkProfile.NetworkInterfaces {
		if id, err := arm.ParseResourceID(value(reference.ID)); err == nil {
			all = append(all, id)
		}
	}
	return all
}

func disksOf(vm *armcompute.VirtualMachine) (all []*arm.ResourceID) {
	if vm.Properties == nil || vm.Properties.StorageProfile == nil {
		return nil
	}
	add := func(disk *armcompute.ManagedDiskParameters) {
		if disk == nil {
			return
		}
		if id, err := arm.ParseResourceID(value(disk.ID)); err == nil {
			all = append(all, id)
		}
	}
	if os := vm.Properties.StorageProfile.OSDisk; os != nil {
		add(os.ManagedDisk)
	}
	for _, data := range vm.Properties.StorageProfile.DataDisks {
		if value(data.CreateOption) != armcompute.DiskCreateOptionTypesAttach {
			add(data.ManagedDisk)
		}
	}
	return all
}

func withoutRoleTags(tags map[string]*string) map[string]*string {
	out := maps.Clone(tags)
	maps.DeleteFunc(out, func(key string, _ *string) bool { return strings.HasPrefix(strings.ToLower(key), roleTags) })
	return out
}

// Disown implements provider.Importer. It also restores the delete options that Adopt changed.
func (d *Driver) Disown(ctx context.Context, req provider.DisownRequest) error {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return err
	}
	c, err := d.clients(req.Class.Credentials)
	if err != nil {
		return err
	}
	at, err := c.locate(req.ProviderID)
	if err != nil {
		return err
	}
	return retryOnConflict(func() error {
		vm, err := c.get(ctx, at)
		if provider.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		tagged := vm.Tags[provider.TagCluster] != nil || vm.Tags[provider.TagMachineUID] != nil ||
			vm.Tags[provider.TagMachine] != nil
		if !tagged {
			return nil
		}
		in, err := c.convert(vm)
		if err != nil {
			return err
		}
		if err := in.OwnedBy(own.cluster, own.machine); err != nil {
			return err
		}
		tags := maps.Clone(vm.Tags)
		for _, key := range []string{provider.TagCluster, provider.TagMachineUID, provider.TagMachine, tagSpec, tagDetached,
			tagNames} {
			delete(tags, key)
		}
		return c.changeVM(ctx, at, vm, armcompute.VirtualMachineUpdate{Tags: tags,
			Properties: restoreDetached(vm.Properties, value(vm.Tags[tagDetached]))})
	})
}

// changeVM fails if the virtual machine has changed since it was read.
func (c *clients) changeVM(ctx context.Context, at location, vm *armcompute.VirtualMachine,
	change armcompute.VirtualMachineUpdate) error {
	if _, err := c.vms.BeginUpdate(ctx, at.group, at.name, change,
		&armcompute.VirtualMachinesClientBeginUpdateOptions{IfMatch: vm.Etag}); err != nil {
		return translate(ctx, err, "tag virtual machine "+at.name)
	}
	return nil
}

// retryOnConflict calls change up to three times, while the resource is modified between its read and its write.
func retryOnConflict(change func() error) error {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		err := change()
		if codeOf(err) != "PreconditionFailed" || attempt == attempts {
			return err
		}
	}
}
