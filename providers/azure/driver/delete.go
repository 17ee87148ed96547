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
	"machinist.dev/machinist/pkg/provider/naming"
)

// Delete implements provider.Driver. The virtual machine goes first, and takes its interfaces, addresses and disks
// with it; what of them is left then, or was made by a Create that did not get further, is removed by its name.
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
	return provider.DeleteResult{Gone: len(left) == 0, Left: strings.Join(left, "; ")}, nil
}

// deleteOne removes the virtual machine with a provider ID and its parts, and returns what is left.
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
		return nil, nil // It was adopted, and none of its parts have names that we gave; or it never was this machine's.
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
	if never, err := c.neverWas(ctx, at); never || err != nil {
		return nil, err
	}
	return []string{leftMachine(at)}, nil
}

// leftMachine names a virtual machine that is not gone yet.
func leftMachine(at location) string { return "virtual machine " + at.name }

// neverWas reports whether a virtual machine that reads do not show is not there: a read may not know a new one yet.
// Deleting what is not there is answered as such. The name is one that only the owner's machines have.
func (c *clients) neverWas(ctx context.Context, at location) (bool, error) {
	var response *http.Response
	_, err := c.vms.BeginDelete(policy.WithCaptureResponse(ctx, &response), at.group, at.name, nil)
	switch {
	case absent(err):
		return true, nil
	case err != nil:
		return false, translate(ctx, err, "delete virtual machine "+at.name)
	}
	return response != nil && response.StatusCode == http.StatusNoContent, nil
}

// deleteAll removes all virtual machines of an owner, and all parts with his names, in a resource group; in the whole
// subscription where group is empty. It returns what is left.
func (c *clients) deleteAll(ctx context.Context, group string, own owner) (left []string, err error) {
	all, err := c.tagged(ctx, group, own)
	if err != nil {
		return nil, err
	}
	if first := (location{group: group, name: naming.Base(own.cluster, own.machine)}); group != "" && len(all) == 0 {
		// The list may lag behind what a check one machine shows.
		vm, err := c.get(ctx, first)
		if err == nil && own.owns(vm.Tags) {
			return []string{leftMachine(first)}, c.terminate(ctx, vm, first, own)
		}
		if err != nil && !provider.IsNotFound(err) {
			return nil, err
		}
	}
	for _, listed := range all {
		at, err := c.at(listed)
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

// terminate asks for the end of a virtual machine that is the owner's, unless that was done.
func (c *clients) terminate(ctx context.Context, vm *armcompute.VirtualMachine, at location, own owner) error {
	in, err := c.convert(vm)
	if err != nil {
		return err
	}
	if err := c.mine(vm, in, own); err != nil {
		return err
	}
	if in.State == provider.StateTerminating {
		return nil
	}
	if _, err := c.vms.BeginDelete(ctx, at.group, at.name, nil); err != nil && !absent(err) {
		return translate(ctx, err, "delete virtual machine "+at.name)
	}
	return nil
}

// deleteParts asks for the deletion of all parts that exist, and returns those, each with Azure's answer where it does
// not delete the part now. An address is in use as long as its interface is, so interfaces go first.
func (c *clients) deleteParts(ctx context.Context, group string, p parts, own owner) (left []string, err error) {
	for _, name := range p.interfaces {
		found, err := c.interfaces.Get(ctx, group, name, nil)
		if absent(err) {
			continue
		}
		if err != nil {
			return nil, translate(ctx, err, "get network interface "+name)
		}
		if own.isAnothers(found.Tags) {
			continue
		}
		if found.Properties != nil && isGoing(found.Properties.ProvisioningState) {
			left = append(left, "network interface "+name)
			continue
		}
		_, err = c.interfaces.BeginDelete(ctx, group, name, nil)
		if err != nil && !absent(err) && !inUse(err) {
			return nil, translate(ctx, err, "delete network interface "+name)
		}
		left = append(left, "network interface "+name+inItsWords(err))
	}
	for _, name := range p.publicIPs {
		found, err := c.publicIPs.Get(ctx, group, name, nil)
		if absent(err) {
			continue
		}
		if err != nil {
			return nil, translate(ctx, err, "get public address "+name)
		}
		if own.isAnothers(found.Tags) {
			continue
		}
		if found.Properties != nil && (found.Properties.IPConfiguration != nil ||
			isGoing(found.Properties.ProvisioningState)) {
			left = append(left, "public address "+name+usedBy(found.Properties.IPConfiguration))
			continue // It is going, or its interface still is.
		}
		_, err = c.publicIPs.BeginDelete(ctx, group, name, nil)
		if err != nil && !absent(err) && !inUse(err) {
			return nil, translate(ctx, err, "delete public address "+name)
		}
		left = append(left, "public address "+name+inItsWords(err))
	}
	for _, name := range p.disks {
		found, err := c.disks.Get(ctx, group, name, nil)
		if absent(err) {
			continue
		}
		if err != nil {
			return nil, translate(ctx, err, "get disk "+name)
		}
		if own.isAnothers(found.Tags) {
			continue
		}
		if found.Properties != nil && isGoing(found.Properties.ProvisioningState) {
			left = append(left, "disk "+name)
			continue
		}
		_, err = c.disks.BeginDelete(ctx, group, name, nil)
		if err != nil && !absent(err) && !inUse(err) {
			return nil, translate(ctx, err, "delete disk "+name)
		}
		left = append(left, "disk "+name+inItsWords(err))
	}
	return left, nil
}

// isGoing reports whether Azure is deleting something: to ask again costs a call, and may begin the deletion anew.
func isGoing[T ~string](state *T) bool {
	return state != nil && strings.EqualFold(string(*state), "Deleting")
}

// isAnothers reports whether a part with one of our names is tagged for somebody else. Without tags it is ours by its
// name: Azure does not say that a disk has the tags of the machine that it was made with.
func (o owner) isAnothers(tags map[string]*string) bool {
	if tags[provider.TagCluster] == nil && tags[provider.TagMachineUID] == nil {
		return false
	}
	return !o.owns(tags)
}

// usedBy names what has an address, to be put behind its name.
func usedBy(c *armnetwork.IPConfiguration) string {
	if c == nil || c.ID == nil {
		return ""
	}
	return fmt.Sprintf(" (in use by %.256s)", *c.ID)
}

// inUse reports whether a part cannot be deleted yet, because another resource that is being deleted uses it.
// https://learn.microsoft.com/azure/virtual-network/virtual-network-network-interface
func inUse(err error) bool {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok || response.StatusCode == http.StatusTooManyRequests {
		return false // OperationNotAllowed is also the code of a quota of calls.
	}
	switch response.ErrorCode {
	case "NicInUse", "NicReservedForAnotherVm", "InUseNetworkInterfaceCannotBeDeleted", "PublicIPAddressCannotBeDeleted",
		"PublicIPAddressInUse",
		"AnotherOperationInProgress", "RetryableError":
		return true
	case "OperationNotAllowed":
		return true // A disk that is still attached.
	}
	return false
}

// leftovers are the parts in a resource group whose names begin with a virtual machine's.
func (c *clients) leftovers(ctx context.Context, group, vm string, own owner) (parts, error) {
	groups, err := c.list(ctx, group, vm, own)
	if p := groups[strings.ToLower(group)]; err == nil && p != nil {
		return *p, nil
	}
	return parts{}, err
}

// leftoversAnywhere are those in the whole subscription, by resource group.
func (c *clients) leftoversAnywhere(ctx context.Context, vm string, own owner) (map[string]*parts, error) {
	return c.list(ctx, "", vm, own)
}

// list goes through all interfaces, addresses and disks.
func (c *clients) list(ctx context.Context, group, vm string, own owner) (map[string]*parts, error) {
	found := map[string]*parts{}
	of := func(id, name *string, tags map[string]*string) *parts {
		if !strings.HasPrefix(value(name), vm+"-") || own.isAnothers(tags) {
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
			return nil, translate(ctx, err, "list what is left of "+vm)
		}
	}
	return found, nil
}

// each goes through all pages.
func each[T any](ctx context.Context, pager *runtime.Pager[T], do func(T)) error {
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return err
		}
		do(page)
	}
	return nil
}

// groupIn is the resource group of a resource ID, in lower case.
func groupIn(id string) string {
	parsed, err := arm.ParseResourceID(id)
	if err != nil {
		return ""
	}
	return strings.ToLower(parsed.ResourceGroupName)
}
