package driver

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/machine"
)

// tagAdoptable, with the value "true", is on virtual machines outside of the resource group of a class that may be
// adopted.
const tagAdoptable = "machinist-adoptable"

// Adopt implements provider.Adopter. A virtual machine is adopted if it is in the resource group of the class or has
// the tag machinist-adoptable: the credentials may reach all of a subscription, and who may create a Machine must not
// be able to delete whatever is in it. Beside tags, the delete options of disks and interfaces change, so that they go
// with the machine; a tag keeps which did, for Disown.
func (d *Driver) Adopt(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	c, err := d.clients(req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	at, err := c.locate(req.ProviderID)
	if err != nil {
		return nil, err
	}
	wanted := own.ownTags(req.Tags)
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	// The machine counts as made from what the class says now. Of another class that a machine comes to have later,
	// Update must answer that it needs another machine.
	wanted[tagSpec] = specHash(spec)
	const checks = 3 // Anything that happens to the machine in between makes the look worthless.
	for check := 1; ; check++ {
		in, err := c.adopt(ctx, at, own, wanted, req)
		if codeOf(err) == "PreconditionFailed" && check < checks {
			continue
		}
		return in, err
	}
}

// adopt checks a virtual machine and puts the wanted tags on it.
func (c *clients) adopt(ctx context.Context, at location, own owner, wanted map[string]string,
	req provider.AdoptRequest) (*provider.Instance, error) {
	group := groupOf(req.Class.Spec)
	vm, err := c.get(ctx, at)
	if err != nil {
		return nil, err
	}
	in, err := c.convert(vm)
	if err != nil {
		return nil, err
	}
	identity := []string{provider.TagCluster, provider.TagMachineUID, provider.TagMachine}
	replaces := req.Replaces(in)
	for _, key := range identity {
		if got := vm.Tags[key]; got != nil && *got != wanted[key] && !replaces {
			if err := in.OwnedBy(own.cluster, own.machine); err != nil {
				return nil, err
			}
			return nil, provider.Errorf(provider.FailedPrecondition, "virtual machine %s is tagged for machine %.128q",
				at.name, *got)
		}
	}
	if !own.owns(vm.Tags) && !strings.EqualFold(at.group, group) && value(vm.Tags[tagAdoptable]) != "true" {
		return nil, provider.Errorf(provider.FailedPrecondition,
			"virtual machine %s is in resource group %s, the class is for %s; to let it be adopted, tag it %s=true", at.name,
			at.group, group, tagAdoptable)
	}
	tags := maps.Clone(vm.Tags)
	if tags == nil {
		tags = map[string]*string{}
	}
	parts := withParts(vm.Properties)
	if parts != nil && tags[tagDetached] == nil {
		if written := detachedIn(vm.Properties); written != "" {
			tags[tagDetached] = ref(written) // Disown puts them back.
		}
	}
	changed := false
	for key, text := range wanted {
		if tags[key] == nil || replaces && slices.Contains(identity, key) {
			tags[key], changed = ref(text), true
		}
	}
	if changed || parts != nil {
		// What changed between the check and this must not be lost, nor another's tags be put over.
		if _, err := c.vms.BeginUpdate(ctx, at.group, at.name,
			armcompute.VirtualMachineUpdate{Tags: tags, Properties: parts},
			&armcompute.VirtualMachinesClientBeginUpdateOptions{IfMatch: vm.Etag}); err != nil {
			return nil, translate(ctx, err, "tag virtual machine "+at.name)
		}
		vm.Tags = tags
	}
	return c.convert(vm)
}

// withParts returns the change by which the disks and interfaces that a virtual machine was made with go when it goes,
// nil if they do: Delete removes parts by the names that Create gives, which those of an adopted machine do not have.
// Disks that were attached to it stay: they are volumes of pods, or a person's.
// https://learn.microsoft.com/azure/virtual-machines/delete
func withParts(p *armcompute.VirtualMachineProperties) *armcompute.VirtualMachineProperties {
	if p == nil {
		return nil
	}
	var change armcompute.VirtualMachineProperties
	if storage, differs := withDisks(p.StorageProfile); differs {
		change.StorageProfile = storage
	}
	if network, differs := withInterfaces(p.NetworkProfile); differs {
		change.NetworkProfile = network
	}
	if change.StorageProfile == nil && change.NetworkProfile == nil {
		return nil
	}
	return &change
}

// withDisks returns the disks as they have to be, all of them: a list in a change replaces the one that is there.
func withDisks(p *armcompute.StorageProfile) (changed *armcompute.StorageProfile, differs bool) {
	if p == nil {
		return nil, false
	}
	stays := func(made *armcompute.DiskCreateOptionTypes, option *armcompute.DiskDeleteOptionTypes) bool {
		return value(made) == armcompute.DiskCreateOptionTypesAttach ||
			value(option) == armcompute.DiskDeleteOptionTypesDelete
	}
	changed = &armcompute.StorageProfile{}
	// An ephemeral disk is no resource, and goes anyway.
	if os := p.OSDisk; os != nil && os.DiffDiskSettings == nil && !stays(os.CreateOption, os.DeleteOption) {
		disk := *os
		disk.DeleteOption, differs = ref(armcompute.DiskDeleteOptionTypesDelete), true
		changed.OSDisk = &disk
	}
	var dataDiffers bool
	for _, data := range p.DataDisks {
		disk := *data
		if !stays(disk.CreateOption, disk.DeleteOption) {
			disk.DeleteOption, dataDiffers = ref(armcompute.DiskDeleteOptionTypesDelete), true
		}
		changed.DataDisks = append(changed.DataDisks, &disk)
	}
	if !dataDiffers {
		changed.DataDisks = nil
	}
	return changed, differs || dataDiffers
}

// withInterfaces returns the interfaces as they have to be, all of them.
func withInterfaces(p *armcompute.NetworkProfile) (changed *armcompute.NetworkProfile, differs bool) {
	if p == nil {
		return nil, false
	}
	changed = &armcompute.NetworkProfile{}
	for _, one := range p.NetworkInterfaces {
		reference := armcompute.NetworkInterfaceReference{ID: one.ID,
			Properties: &armcompute.NetworkInterfaceReferenceProperties{}}
		if one.Properties != nil {
			*reference.Properties = *one.Properties
		}
		if value(reference.Properties.DeleteOption) != armcompute.DeleteOptionsDelete {
			reference.Properties.DeleteOption, differs = ref(armcompute.DeleteOptionsDelete), true
		}
		changed.NetworkInterfaces = append(changed.NetworkInterfaces, &reference)
	}
	return changed, differs
}
