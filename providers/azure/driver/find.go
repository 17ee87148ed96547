package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/pkg/provider/naming"
	"machinist.dev/machinist/providers/azure/machine"
)

// Get implements provider.Driver. If the request contains a provider ID, Get also returns a virtual machine of another
// owner. An adoption reads the tags of such a machine.
func (d *Driver) Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
	c, err := d.clients(req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	if req.ProviderID != "" {
		at, err := c.locate(req.ProviderID)
		if err != nil {
			return nil, err
		}
		return c.getInstance(ctx, at)
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	group := groupOf(req.Class.Spec)
	if group != "" {
		// Get the machine by the name that the first attempt uses, because a list may lack a new machine.
		in, err := c.getInstance(ctx, location{group: group, name: naming.Base(own.cluster, own.machine)})
		if err == nil && in.OwnedBy(own.cluster, own.machine) == nil {
			return in, nil
		}
		if err != nil && !provider.IsNotFound(err) {
			return nil, err
		}
	}
	all, err := c.taggedVMs(ctx, group, own)
	if err != nil {
		return nil, err
	}
	for _, vm := range all {
		at, err := c.locationOf(vm)
		if err != nil {
			return nil, err
		}
		// Read the machine again, because the list omits some properties and may be outdated.
		in, err := c.getInstance(ctx, at)
		if err == nil && in.OwnedBy(own.cluster, own.machine) == nil {
			return in, nil
		}
		if err != nil && !provider.IsNotFound(err) {
			return nil, err
		}
	}
	return nil, provider.Errorf(provider.NotFound, "machine %s in cluster %q has no virtual machine",
		own.machine.UID, own.cluster)
}

// groupOf returns the resource group of a providerSpec, or an empty string.
func groupOf(raw []byte) string {
	spec, err := machine.ParseSpec(raw)
	if err != nil {
		return ""
	}
	return spec.ResourceGroup
}

func (c *clients) get(ctx context.Context, at location) (*armcompute.VirtualMachine, error) {
	attempted := "get virtual machine " + at.name
	out, err := c.vms.Get(ctx, at.group, at.name,
		&armcompute.VirtualMachinesClientGetOptions{Expand: ref(armcompute.InstanceViewTypesInstanceView)})
	if isAbsent(err) {
		return nil, &provider.Error{Code: provider.NotFound, Message: attempted + ": the virtual machine does not exist",
			Cause: err}
	}
	if err != nil {
		return nil, translate(ctx, err, attempted)
	}
	return &out.VirtualMachine, nil
}

func (c *clients) getInstance(ctx context.Context, at location) (*provider.Instance, error) {
	vm, err := c.get(ctx, at)
	if err != nil {
		return nil, err
	}
	in, err := c.convert(vm)
	if err != nil {
		return nil, err
	}
	if in.State == provider.StateRunning {
		in.Addresses, err = c.addresses(ctx, vm)
	}
	return in, err
}

// addresses returns the addresses of all interfaces, and the host name.
func (c *clients) addresses(ctx context.Context, vm *armcompute.VirtualMachine) ([]corev1.NodeAddress, error) {
	if vm.Properties == nil || vm.Properties.NetworkProfile == nil {
		return nil, nil
	}
	all := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: strings.ToLower(value(vm.Name))}}
	for _, reference := range vm.Properties.NetworkProfile.NetworkInterfaces {
		id, err := arm.ParseResourceID(value(reference.ID))
		if err != nil || !strings.EqualFold(id.SubscriptionID, c.subscription) {
			continue
		}
		n, err := c.interfaces.Get(ctx, id.ResourceGroupName, id.Name, nil)
		if isAbsent(err) {
			continue // Azure deletes the interface together with its machine.
		}
		if err != nil {
			return nil, translate(ctx, err, "get network interface "+id.Name)
		}
		if n.Properties == nil {
			continue
		}
		for _, ip := range n.Properties.IPConfigurations {
			if ip.Properties == nil {
				continue
			}
			if value(ip.Properties.PrivateIPAddress) != "" {
				all = append(all, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: *ip.Properties.PrivateIPAddress})
			}
			if ip.Properties.PublicIPAddress == nil {
				continue
			}
			public, err := c.publicAddress(ctx, value(ip.Properties.PublicIPAddress.ID))
			if err != nil {
				return nil, err
			}
			if public != "" {
				all = append(all, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: public})
			}
		}
	}
	return all, nil
}

// publicAddress reads a public address, because an interface contains only its ID. The result is empty if there is no
// address or it cannot be read. A missing permission must not make the whole machine invisible.
func (c *clients) publicAddress(ctx context.Context, resourceID string) (string, error) {
	id, err := arm.ParseResourceID(resourceID)
	if err != nil || !strings.EqualFold(id.SubscriptionID, c.subscription) {
		return "", nil
	}
	found, err := c.publicIPs.Get(ctx, id.ResourceGroupName, id.Name, nil)
	if isAbsent(err) {
		return "", nil // Azure deletes the address together with its machine.
	}
	if err != nil {
		if err = translate(ctx, err, "get public address "+id.Name); provider.CodeOf(err) == provider.PermissionDenied {
			return "", nil
		}
		return "", err
	}
	if found.Properties == nil {
		return "", nil
	}
	return value(found.Properties.IPAddress), nil
}

// taggedVMs returns the virtual machines with the tags of an owner in a resource group. With an empty group, it
// searches the whole subscription.
func (c *clients) taggedVMs(ctx context.Context, group string, own owner) ([]*armcompute.VirtualMachine, error) {
	var found []*armcompute.VirtualMachine
	ctx = httpapi.List(ctx)
	for next := ""; ; {
		page, after, err := c.page(ctx, group, next)
		if err != nil {
			return nil, err
		}
		for _, vm := range page {
			if own.owns(vm.Tags) {
				found = append(found, vm)
			}
		}
		if next = after; next == "" {
			return found, nil
		}
	}
}

// List implements provider.Driver. It returns the virtual machines, and then parts without a virtual machine. Each page
// contains the cluster's resources from one page of Azure's list. List reads only the resource group of the
// specification, because users who may write a class can confirm the removal of orphans there.
func (d *Driver) List(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
	if req.ClusterID == "" {
		return provider.ListPage{}, provider.Errorf(provider.InvalidArgument,
			"list virtual machines: the cluster ID is empty")
	}
	c, err := d.clients(req.Class.Credentials)
	if err != nil {
		return provider.ListPage{}, err
	}
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return provider.ListPage{}, err
	}
	kind, link := cutContinue(req.Continue)
	if kind != "" {
		leftovers, next, err := c.leftoverPage(ctx, kind, spec.ResourceGroup, link, req.ClusterID)
		if err != nil {
			return provider.ListPage{}, err
		}
		return provider.ListPage{Leftovers: leftovers, Continue: continueAt(kind, next)}, nil
	}
	all, next, err := c.page(ctx, spec.ResourceGroup, link)
	if err != nil {
		return provider.ListPage{}, err
	}
	page := provider.ListPage{Continue: continueAt("", next)}
	for _, vm := range all {
		if value(vm.Tags[provider.TagCluster]) != req.ClusterID {
			continue
		}
		in, err := c.convert(vm)
		if err != nil {
			return provider.ListPage{}, err
		}
		page.Instances = append(page.Instances, *in)
	}
	return page, nil
}

// ListScope implements provider.Scoper. The scope is the resource group of the specification.
func (d *Driver) ListScope(class provider.Class) (string, error) {
	if needsWorkloadIdentity(class.Credentials) {
		// A namespace without permission must not receive the list of another namespace with the same credentials.
		if a, err := parseCredentials(class.Credentials); err == nil {
			if err := d.options.checkGrant(a, class.Credentials.Namespace()); err != nil {
				return "", err
			}
		}
	}
	spec, err := machine.ParseSpec(class.Spec)
	if err != nil {
		return "", err
	}
	return "resource group " + strings.ToLower(spec.ResourceGroup), nil
}

// Account implements provider.Accounter. The account is the subscription.
func (d *Driver) Account(class provider.Class) (string, error) {
	a, err := parseCredentials(class.Credentials)
	return a.subscription, err
}

// CapacityPool implements provider.Pooler. Spot machines and capacity reservations have capacity of their own.
func (d *Driver) CapacityPool(class provider.Class) (string, error) {
	spec, err := machine.ParseSpec(class.Spec)
	switch {
	case err != nil:
		return "", err
	case spec.Spot != nil:
		return "spot", nil
	}
	return strings.ToLower(spec.CapacityReservationGroupID), nil
}

// page reads the page of virtual machines at a link, or the first page if the link is empty.
// https://learn.microsoft.com/rest/api/compute/virtual-machines/list
func (c *clients) page(ctx context.Context, group, link string) ([]*armcompute.VirtualMachine, string, error) {
	const attempted = "list virtual machines"
	if link != "" && !c.isOwnEndpoint(link) {
		return nil, "", provider.Errorf(provider.InvalidArgument, "%s: the continue token does not point to Azure", attempted)
	}
	if group == "" {
		out, err := onePage(ctx, c.vms.NewListAllPager(nil), link)
		if err != nil {
			return nil, "", translate(ctx, err, attempted)
		}
		next, err := c.nextLink(attempted, out.NextLink)
		return withoutDuplicates(out.Value, vmID), next, err
	}
	out, err := onePage(ctx, c.vms.NewListPager(group, nil), link)
	if codeOf(err) == "ResourceGroupNotFound" {
		return nil, "", nil // The group does not exist, so it contains nothing.
	}
	if err != nil {
		return nil, "", translate(ctx, err, attempted)
	}
	next, err := c.nextLink(attempted, out.NextLink)
	return withoutDuplicates(out.Value, vmID), next, err
}

func vmID(vm *armcompute.VirtualMachine) *string { return vm.ID }

// withoutDuplicates removes repeated resources. withoutDuplicates ignores case, because Azure may return an ID in
// different cases.
func withoutDuplicates[T any](page []*T, id func(*T) *string) []*T {
	seen := make(map[string]bool, len(page))
	return slices.DeleteFunc(page, func(r *T) bool {
		key := strings.ToLower(value(id(r)))
		if seen[key] {
			return true
		}
		seen[key] = true
		return false
	})
}

// isOwnEndpoint reports whether a link points to the endpoint of the clients.
func (c *clients) isOwnEndpoint(link string) bool {
	to, err := url.Parse(link)
	return err == nil && to.IsAbs() && httpapi.CheckLink(c.endpoint, link) == nil
}

// nextLink returns the link to the next page. A link to another endpoint is an error, because access tokens must not be
// sent there.
func (c *clients) nextLink(attempted string, link *string) (string, error) {
	next := value(link)
	if next == "" {
		return "", nil
	}
	if err := httpapi.CheckLink(c.endpoint, next); err != nil {
		return "", provider.Errorf(provider.Internal, "%s: %s", attempted, err)
	}
	return next, nil
}

// onePage reads the page at a link. The SDK's pager cannot start at a link. The pager can only continue after an
// earlier page. So onePage creates an earlier page that contains only the link.
func onePage[T any](ctx context.Context, pager *runtime.Pager[T], link string) (T, error) {
	if link != "" {
		previous, err := json.Marshal(map[string]string{"nextLink": link})
		if err == nil {
			err = json.Unmarshal(previous, pager)
		}
		if err == nil {
			_, err = pager.NextPage(ctx) // This call only restores the previous page.
		}
		if err != nil {
			var none T
			return none, fmt.Errorf("continue a list: %w", err)
		}
	}
	return pager.NextPage(ctx)
}
