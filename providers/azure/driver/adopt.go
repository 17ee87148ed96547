package driver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/machine"
)

// tagAdoptable allows the adoption of a virtual machine if its value is "true".
const tagAdoptable = "machinist-adoptable"

// missingTag is the end of an error message that begins with the name of a virtual machine.
func missingTag(providerID string) string {
	return " lacks the tag " + tagAdoptable + "=true; to allow its adoption, set the tag: az tag update --operation Merge " +
		"--tags " + tagAdoptable + "=true --resource-id '" + strings.TrimPrefix(providerID, providerIDPrefix) + "'"
}

func isMarked(tags map[string]*string) bool { return tagValue(tags, tagAdoptable) == "true" }

// Adopt implements provider.Adopter. The virtual machine must have the tag machinist-adoptable. Otherwise, every user
// who may create a Machine could delete any virtual machine that the credentials can reach. The tag is unnecessary for
// a virtual machine of a former cluster in the resource group of the class, because List covers this group.
//
// Adopt also changes the delete options of disks and interfaces, so that Azure deletes them with the machine. A tag
// records these changes for Disown.
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
	// Record the current specification of the class, so that Update can detect later changes of the class.
	wanted[tagSpec] = specHash(spec)
	const checks = 3 // A change after the read invalidates the checks, so they are repeated.
	for check := 1; ; check++ {
		in, err := c.adopt(ctx, at, own, wanted, req)
		if codeOf(err) == "PreconditionFailed" && check < checks {
			continue
		}
		return in, err
	}
}

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
	if !own.owns(vm.Tags) && !isMarked(vm.Tags) && !(replaces && strings.EqualFold(at.group, group)) {
		where := ""
		if replaces {
			where = fmt.Sprintf(", which is in resource group %s and not in resource group %s of the class,", at.group, group)
		}
		return nil, provider.Errorf(provider.FailedPrecondition, "virtual machine %s%s%s", at.name, where,
			missingTag(in.ProviderID))
	}
	tags := maps.Clone(vm.Tags)
	if tags == nil {
		tags = map[string]*string{}
	}
	parts := deleteOptionsChange(vm.Properties)
	if parts != nil && tags[tagDetached] == nil {
		if kept := encodeDetached(vm.Properties); kept != "" {
			tags[tagDetached] = ref(kept) // Disown restores these delete options.
		}
	}
	changed := false
	for key, text := range wanted {
		if tags[key] == nil || replaces && slices.Contains(identity, key) {
			tags[key], changed = ref(text), true
		}
	}
	if changed || parts != nil {
		// IfMatch prevents the loss of concurrent changes, such as the tags of another owner.
		if _, err := c.vms.BeginUpdate(ctx, at.group, at.name,
			armcompute.VirtualMachineUpdate{Tags: tags, Properties: parts},
			&armcompute.VirtualMachinesClientBeginUpdateOptions{IfMatch: vm.Etag}); err != nil {
			return nil, translate(ctx, err, "tag virtual machine "+at.name)
		}
		vm.Tags = tags
	}
	return c.convert(vm)
}

// deleteOptionsChange returns the update that makes Azure delete the machine's own disks and interfaces together with
// the machine, or nil. Delete cannot find these parts by name: the parts of an adopted machine have other names.
// Disks that were attached later are kept, because they are volumes of pods or belong to a user.
// https://learn.microsoft.com/azure/virtual-machines/delete
func deleteOptionsChange(p *armcompute.VirtualMachineProperties) *armcompute.VirtualMachineProperties {
	if p == nil {
		return nil
	}
	var change armcompute.VirtualMachineProperties
	if storage, differs := diskDeleteOptions(p.StorageProfile); differs {
		change.StorageProfile = storage
	}
	if network, differs := interfaceDeleteOptions(p.NetworkProfile); differs {
		change.NetworkProfile = network
	}
	if change.StorageProfile == nil && change.NetworkProfile == nil {
		return nil
	}
	return &change
}

// diskDeleteOptions returns the complete list of disks, with the wanted delete options. Azure replaces the whole list
// in an update.
func diskDeleteOptions(p *armcompute.StorageProfile) (changed *armcompute.StorageProfile, differs bool) {
	if p == nil {
		return nil, false
	}
	unchanged := func(create *armcompute.DiskCreateOptionTypes, option *armcompute.DiskDeleteOptionTypes) bool {
		return value(create) == armcompute.DiskCreateOptionTypesAttach ||
			value(option) == armcompute.DiskDeleteOptionTypesDelete
	}
	changed = &armcompute.StorageProfile{}
	// An ephemeral disk is not a resource. Azure always deletes such a disk with the machine.
	if os := p.OSDisk; os != nil && os.DiffDiskSettings == nil && !unchanged(os.CreateOption, os.DeleteOption) {
		disk := *os
		disk.DeleteOption, differs = ref(armcompute.DiskDeleteOptionTypesDelete), true
		changed.OSDisk = &disk
	}
	var dataDiffers bool
	for _, data := range p.DataDisks {
		disk := *data
		if !unchanged(disk.CreateOption, disk.DeleteOption) {
			disk.DeleteOption, dataDiffers = ref(armcompute.DiskDeleteOptionTypesDelete), true
		}
		changed.DataDisks = append(changed.DataDisks, &disk)
	}
	if !dataDiffers {
		changed.DataDisks = nil
	}
	return changed, differs || dataDiffers
}

func interfaceDeleteOptions(p *armcompute.NetworkProfile) (changed *armcompute.NetworkProfile, differs bool) {
	if p == nil {
		return nil, false
	}
	changed = &armcompute.NetworkProfile{}
	for _, existing := range p.NetworkInterfaces {
		reference := armcompute.NetworkInterfaceReference{ID: existing.ID,
			Properties: &armcompute.NetworkInterfaceReferenceProperties{}}
		if existing.Properties != nil {
			*reference.Properties = *existing.Properties
		}
		if value(reference.Properties.DeleteOption) != armcompute.DeleteOptionsDelete {
			reference.Properties.DeleteOption, differs = ref(armcompute.DeleteOptionsDelete), true
		}
		changed.NetworkInterfaces = append(changed.NetworkInterfaces, &reference)
	}
	return changed, differs
}
