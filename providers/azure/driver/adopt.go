package driver

import (
	"context"
	"maps"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"machinist.dev/machinist/pkg/provider"
)

// tagAdoptable, with the value "true", is on virtual machines outside of the resource group of a class that may be
// adopted.
const tagAdoptable = "machinist-adoptable"

// Adopt implements provider.Adopter. A virtual machine is adopted if it is in the resource group of the class or has
// the tag machinist-adoptable: the credentials may reach all of a subscription, and who may create a Machine must not
// be able to delete whatever is in it. Only tags change: what becomes of an adopted machine's disks, interfaces and
// addresses when it is deleted is up to the delete options that it was made with.
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
	const checks = 3 // Anything that happens to the machine in between makes the look worthless.
	for check := 1; ; check++ {
		in, err := c.adopt(ctx, at, own, own.ownTags(req.Tags), groupOf(req.Class.Spec))
		if codeOf(err) == "PreconditionFailed" && check < checks {
			continue
		}
		return in, err
	}
}

// adopt checks a virtual machine and puts the tags on it. group is the resource group of the class.
func (c *clients) adopt(ctx context.Context, at location, own owner, wanted map[string]string,
	group string) (*provider.Instance, error) {
	vm, err := c.get(ctx, at)
	if err != nil {
		return nil, err
	}
	in, err := c.convert(vm)
	if err != nil {
		return nil, err
	}
	for _, key := range []string{provider.TagCluster, provider.TagMachineUID, provider.TagMachine} {
		if got := vm.Tags[key]; got != nil && *got != wanted[key] {
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
	changed := false
	for key, text := range wanted {
		if tags[key] == nil {
			tags[key], changed = ref(text), true
		}
	}
	if changed {
		// What changed between the look and this must not be lost, nor another's tags be put over.
		if _, err := c.vms.BeginUpdate(ctx, at.group, at.name, armcompute.VirtualMachineUpdate{Tags: tags},
			&armcompute.VirtualMachinesClientBeginUpdateOptions{IfMatch: vm.Etag}); err != nil {
			return nil, translate(ctx, err, "tag virtual machine "+at.name)
		}
		vm.Tags = tags
	}
	return c.convert(vm)
}
