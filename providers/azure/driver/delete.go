package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/pkg/provider/naming"
)

// Delete implements provider.Driver. Azure deletes the interfaces, addresses and disks with the virtual machine. Then
// Delete finds remaining parts by name, including those of an interrupted Create.
func (d *Driver) Delete(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	c, err := d.clients(req.Class.Credentials)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	var left []string
	if req.ProviderID != "" {
		left, err = c.deleteOne(ctx, req.ProviderID, req.Scope, own)
	} else {
		left, err = c.deleteAll(ctx, groupOf(req.Class.Spec), own)
	}
	if err != nil {
		return provider.DeleteResult{}, err
	}
	return provider.DeleteResult{Gone: len(left) == 0, Remaining: strings.Join(left, "; ")}, nil
}

// deleteOne deletes one virtual machine with its parts and returns what still exists.
func (c *clients) deleteOne(ctx context.Context, id, scope string, own owner) (left []string, err error) {
	at, err := c.locate(id)
	if err != nil {
		return nil, err
	}
	vm, err := c.get(ctx, at)
	switch {
	case err == nil:
		return []string{leftMachine(at)}, c.terminate(ctx, vm, at, own)
	case !provider.IsNotFound(err):
		return nil, err
	}
	if !naming.IsOf(at.name, naming.Base(own.cluster, own.machine)) {
		return nil, nil // The machine was adopted, so its parts have other names, or it never belonged to this owner.
	}
	p, known := partsIn(at.name, scope)
	if !known {
		if p, err = c.leftovers(ctx, at.group, at.name, own); err != nil {
			return nil, err
		}
	}
	if left, err = c.deleteParts(ctx, at.group, p, own); len(left) > 0 || err != nil {
		return left, err
	}
	if gone, err := c.confirmedAbsent(ctx, at); gone || err != nil {
		return nil, err
	}
	return []string{leftMachine(at)}, nil
}

func leftMachine(at location) string { return "virtual machine " + at.name }

// confirmedAbsent reports whether a virtual machine is absent. confirmedAbsent sends a delete request, because a read
// may not find a new virtual machine, but a delete request always finds it. Deleting by name is safe: only machines
// of the owner have such names.
func (c *clients) confirmedAbsent(ctx context.Context, at location) (bool, error) {
	var response *http.Response
	_, err := c.vms.BeginDelete(policy.WithCaptureResponse(ctx, &response), at.group, at.name, nil)
	switch {
	case isAbsent(err):
		return true, nil
	case err != nil:
		return false, translate(ctx, err, "delete virtual machine "+at.name)
	}
	return response != nil && response.StatusCode == http.StatusNoContent, nil
}

// deleteAll deletes all virtual machines and parts of an owner in a resource group, and returns what still exists. With
// an empty group, it searches the whole subscription.
func (c *clients) deleteAll(ctx context.Context, group string, own owner) (left []string, err error) {
	all, err := c.taggedVMs(ctx, group, own)
	if err != nil {
		return nil, err
	}
	if first := (location{group: group, name: naming.Base(own.cluster, own.machine)}); group != "" && len(all) == 0 {
		// A list may lack a virtual machine that can already be read by name.
		vm, err := c.get(ctx, first)
		if err == nil && own.owns(vm.Tags) {
			return []string{leftMachine(first)}, c.terminate(ctx, vm, first, own)
		}
		if err != nil && !provider.IsNotFound(err) {
			return nil, err
		}
	}
	for _, listed := range all {
		at, err := c.locationOf(listed)
		if err != nil {
			return nil, err
		}
		vm, err := c.get(ctx, at)
		if provider.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := c.terminate(ctx, vm, at, own); err != nil {
			return nil, err
		}
		left = append(left, leftMachine(at))
	}
	if len(left) > 0 {
		return left, nil
	}
	base := naming.Base(own.cluster, own.machine)
	if group != "" {
		p, err := c.leftovers(ctx, group, base, own)
		if err != nil {
			return nil, err
		}
		return c.deleteParts(ctx, group, p, own)
	}
	groups, err := c.leftoversAnywhere(ctx, base, own)
	if err != nil {
		return nil, err
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		some, err := c.deleteParts(ctx, group, *groups[group], own)
		if err != nil {
			return nil, err
		}
		left = append(left, some...)
	}
	return left, nil
}

// terminate starts the deletion of the owner's virtual machine, unless it is already being deleted.
func (c *clients) terminate(ctx context.Context, vm *armcompute.VirtualMachine, at location, own owner) error {
	in, err := c.convert(vm)
	if err != nil {
		return err
	}
	if err := c.checkOwner(vm, in, own); err != nil {
		return err
	}
	if in.State == provider.StateTerminating {
		return nil
	}
	if _, err := c.vms.BeginDelete(ctx, at.group, at.name, nil); err != nil && !isAbsent(err) {
		return translate(ctx, err, "delete virtual machine "+at.name)
	}
	return nil
}

// deleteParts starts the deletion of all parts and returns the parts that still exist, with Azure's answer if Azure
// refuses the deletion. Interfaces come first, because addresses are in use until their interfaces are gone.
func (c *clients) deleteParts(ctx context.Context, group string, p parts, own owner) (left []string, err error) {
	for _, name := range p.interfaces {
		found, err := c.interfaces.Get(ctx, group, name, nil)
		if isAbsent(err) {
			continue
		}
		if err != nil {
			return nil, translate(ctx, err, "get network interface "+name)
		}
		if own.belongsToAnother(found.Tags) {
			continue
		}
		if found.Properties != nil && isDeleting(found.Properties.ProvisioningState) {
			left = append(left, "network interface "+name)
			continue
		}
		_, err = c.interfaces.BeginDelete(ctx, group, name, nil)
		if err != nil && !isAbsent(err) && !inUse(err) {
			return nil, translate(ctx, err, "delete network interface "+name)
		}
		left = append(left, "network interface "+name+azureAnswer(err))
	}
	for _, name := range p.publicIPs {
		found, err := c.publicIPs.Get(ctx, group, name, nil)
		if isAbsent(err) {
			continue
		}
		if err != nil {
			return nil, translate(ctx, err, "get public address "+name)
		}
		if own.belongsToAnother(found.Tags) {
			continue
		}
		if found.Properties != nil && (found.Properties.IPConfiguration != nil ||
			isDeleting(found.Properties.ProvisioningState)) {
			left = append(left, "public address "+name+usedBy(found.Properties.IPConfiguration))
			continue // Azure is deleting the address, or its interface still exists.
		}
		_, err = c.publicIPs.BeginDelete(ctx, group, name, nil)
		if err != nil && !isAbsent(err) && !inUse(err) {
			return nil, translate(ctx, err, "delete public address "+name)
		}
		left = append(left, "public address "+name+azureAnswer(err))
	}
	for _, name := range p.disks {
		found, err := c.disks.Get(ctx, group, name, nil)
		if isAbsent(err) {
			continue
		}
		if err != nil {
			return nil, translate(ctx, err, "get disk "+name)
		}
		if own.belongsToAnother(found.Tags) {
			continue
		}
		if found.Properties != nil && isDeleting(found.Properties.ProvisioningState) {
			left = append(left, "disk "+name)
			continue
		}
		_, err = c.disks.BeginDelete(ctx, group, name, nil)
		if err != nil && !isAbsent(err) && !inUse(err) {
			return nil, translate(ctx, err, "delete disk "+name)
		}
		left = append(left, "disk "+name+azureAnswer(err))
	}
	return left, nil
}

// isDeleting reports whether Azure is deleting a resource. A second delete request might restart the deletion.
func isDeleting[T ~string](state *T) bool {
	return state != nil && strings.EqualFold(string(*state), "Deleting")
}

// belongsToAnother reports whether a part has the tags of another owner. Without tags, the name decides: Azure may
// create a disk without the requested tags.
func (o owner) belongsToAnother(tags map[string]*string) bool {
	if tags[provider.TagCluster] == nil && tags[provider.TagMachineUID] == nil {
		return false
	}
	return !o.owns(tags)
}

// usedBy names the resource that uses an address, for messages.
func usedBy(c *armnetwork.IPConfiguration) string {
	if c == nil || c.ID == nil {
		return ""
	}
	return fmt.Sprintf(" (in use by %.256s)", *c.ID)
}

// inUse reports whether a part cannot be deleted yet because of a resource that is being deleted.
// https://learn.microsoft.com/azure/virtual-network/virtual-network-network-interface
func inUse(err error) bool {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok || response.StatusCode == http.StatusTooManyRequests {
		return false // An API quota also has the code OperationNotAllowed.
	}
	switch response.ErrorCode {
	case "NicInUse", "NicReservedForAnotherVm", "InUseNetworkInterfaceCannotBeDeleted", "PublicIPAddressCannotBeDeleted",
		"PublicIPAddressInUse",
		"AnotherOperationInProgress", "RetryableError":
		return true
	case "OperationNotAllowed":
		return true // The disk is still attached.
	}
	return false
}

// leftovers returns the parts in a resource group whose names begin with the name of a virtual machine.
func (c *clients) leftovers(ctx context.Context, group, vm string, own owner) (parts, error) {
	groups, err := c.list(ctx, group, vm, own)
	if p := groups[strings.ToLower(group)]; err == nil && p != nil {
		return *p, nil
	}
	return parts{}, err
}

// leftoversAnywhere returns the parts in the whole subscription by resource group.
func (c *clients) leftoversAnywhere(ctx context.Context, vm string, own owner) (map[string]*parts, error) {
	return c.list(ctx, "", vm, own)
}

// list finds the parts of a virtual machine among all interfaces, addresses and disks.
func (c *clients) list(ctx context.Context, group, vm string, own owner) (map[string]*parts, error) {
	found := map[string]*parts{}
	of := func(id, name *string, tags map[string]*string) *parts {
		if !strings.HasPrefix(value(name), vm+"-") || own.belongsToAnother(tags) {
			return nil
		}
		in := groupIn(value(id))
		if in == "" {
			return nil
		}
		if found[in] == nil {
			found[in] = &parts{}
		}
		return found[in]
	}
	interfaces := func(all []*armnetwork.Interface) {
		for _, n := range all {
			if p := of(n.ID, n.Name, n.Tags); p != nil {
				p.interfaces = append(p.interfaces, *n.Name)
			}
		}
	}
	publicIPs := func(all []*armnetwork.PublicIPAddress) {
		for _, ip := range all {
			if p := of(ip.ID, ip.Name, ip.Tags); p != nil {
				p.publicIPs = append(p.publicIPs, *ip.Name)
			}
		}
	}
	disks := func(all []*armcompute.Disk) {
		for _, d := range all {
			if p := of(d.ID, d.Name, d.Tags); p != nil {
				p.disks = append(p.disks, *d.Name)
			}
		}
	}
	var lists []func() error
	if group != "" {
		lists = []func() error{
			func() error {
				return each(ctx, c.interfaces.NewListPager(group, nil), func(p armnetwork.InterfacesClientListResponse) {
					interfaces(p.Value)
				})
			},
			func() error {
				return each(ctx, c.publicIPs.NewListPager(group, nil), func(p armnetwork.PublicIPAddressesClientListResponse) {
					publicIPs(p.Value)
				})
			},
			func() error {
				return each(ctx, c.disks.NewListByResourceGroupPager(group, nil),
					func(p armcompute.DisksClientListByResourceGroupResponse) { disks(p.Value) })
			},
		}
	} else {
		lists = []func() error{
			func() error {
				return each(ctx, c.interfaces.NewListAllPager(nil), func(p armnetwork.InterfacesClientListAllResponse) {
					interfaces(p.Value)
				})
			},
			func() error {
				return each(ctx, c.publicIPs.NewListAllPager(nil), func(p armnetwork.PublicIPAddressesClientListAllResponse) {
					publicIPs(p.Value)
				})
			},
			func() error {
				return each(ctx, c.disks.NewListPager(nil), func(p armcompute.DisksClientListResponse) { disks(p.Value) })
			},
		}
	}
	for _, list := range lists {
		if err := list(); codeOf(err) == "ResourceGroupNotFound" {
			return found, nil
		} else if err != nil {
			return nil, translate(ctx, err, "list the parts of "+vm)
		}
	}
	return found, nil
}

func each[T any](ctx context.Context, pager *runtime.Pager[T], do func(T)) error {
	ctx = httpapi.List(ctx)
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return err
		}
		do(page)
	}
	return nil
}

func groupIn(id string) string {
	parsed, err := arm.ParseResourceID(id)
	if err != nil {
		return ""
	}
	return strings.ToLower(parsed.ResourceGroupName)
}
