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
	"machinist.dev/machinist/pkg/provider/naming"
	"machinist.dev/machinist/providers/azure/machine"
)

// Get implements provider.Driver. By provider ID it returns the virtual machine whoever's it is: who adopts one has
// to see its tags.
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
		return c.check(ctx, at)
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	group := groupOf(req.Class.Spec)
	if group != "" {
		// The first attempt's name is known, and a check one machine never lags.
		in, err := c.check(ctx, location{group: group, name: naming.Base(own.cluster, own.machine)})
		if err == nil && in.OwnedBy(own.cluster, own.machine) == nil {
			return in, nil
		}
		if err != nil && !provider.IsNotFound(err) {
			return nil, err
		}
	}
	all, err := c.tagged(ctx, group, own)
	if err != nil {
		return nil, err
	}
	for _, vm := range all {
		at, err := c.at(vm)
		if err != nil {
			return nil, err
		}
		// The list does not have all of it, and may lag.
		in, err := c.check(ctx, at)
		if err == nil && in.OwnedBy(own.cluster, own.machine) == nil {
			return in, nil
		}
		if err != nil && !provider.IsNotFound(err) {
			return nil, err
		}
	}
	return nil, provider.Errorf(provider.NotFound, "there is no virtual machine of machine %s in cluster %q",
		own.machine.UID, own.cluster)
}

// groupOf is the resource group that a providerSpec names, empty where there is none.
func groupOf(raw []byte) string {
	spec, err := machine.ParseSpec(raw)
	if err != nil {
		return ""
	}
	return spec.ResourceGroup
}

// get reads one virtual machine with the state of its power.
func (c *clients) get(ctx context.Context, at location) (*armcompute.VirtualMachine, error) {
	attempted := "get virtual machine " + at.name
	out, err := c.vms.Get(ctx, at.group, at.name,
		&armcompute.VirtualMachinesClientGetOptions{Expand: ref(armcompute.InstanceViewTypesInstanceView)})
	if absent(err) {
		return nil, &provider.Error{Code: provider.NotFound, Message: attempted + ": there is none", Cause: err}
	}
	if err != nil {
		return nil, translate(ctx, err, attempted)
	}
	return &out.VirtualMachine, nil
}

// check reads one virtual machine and, while it runs, its addresses.
func (c *clients) check(ctx context.Context, at location) (*provider.Instance, error) {
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

// addresses are those of the interfaces, and the names under which a node may serve.
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
		if absent(err) {
			continue // It goes with its machine.
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

// publicAddress reads a public address: the interface has only its resource ID. It is empty where there is none yet,
// where it is another subscription's, and where the credentials may not read it, which must not keep the machine from
// being seen.
func (c *clients) publicAddress(ctx context.Context, resourceID string) (string, error) {
	id, err := arm.ParseResourceID(resourceID)
	if err != nil || !strings.EqualFold(id.SubscriptionID, c.subscription) {
		return "", nil
	}
	found, err := c.publicIPs.Get(ctx, id.ResourceGroupName, id.Name, nil)
	if absent(err) {
		return "", nil // It goes with its machine.
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

// tagged are the virtual machines of an owner in a resource group, or in the whole subscription where group is empty.
func (c *clients) tagged(ctx context.Context, group string, own owner) ([]*armcompute.VirtualMachine, error) {
	var found []*armcompute.VirtualMachine
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

// List implements provider.Driver: the virtual machines, then the parts that belong to none. A page of it is one of
// Azure's, less what is not the cluster's.
func (d *Driver) List(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
	if req.ClusterID == "" {
		return provider.ListPage{}, provider.Errorf(provider.InvalidArgument,
			"list virtual machines: the cluster id is empty")
	}
	c, err := d.clients(req.Class.Credentials)
	if err != nil {
		return provider.ListPage{}, err
	}
	kind, link := cutContinue(req.Continue)
	if kind != "" {
		leftovers, next, err := c.leftoverPage(ctx, kind, groupOf(req.Class.Spec), link, req.ClusterID)
		if err != nil {
			return provider.ListPage{}, err
		}
		return provider.ListPage{Leftovers: leftovers, Continue: continueAt(kind, next)}, nil
	}
	all, next, err := c.page(ctx, groupOf(req.Class.Spec), link)
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

// ListScope implements provider.Scoper: List goes through a resource group or, where the specification names none, the
// subscription of the credentials.
func (d *Driver) ListScope(class provider.Class) (string, error) {
	if withoutSecret(class.Credentials) {
		// A list that is refused for one namespace must not stand for another's with the same credentials.
		if a, err := parseCredentials(class.Credentials); err == nil {
			if err := d.options.mayUse(a, class.Credentials.Namespace()); err != nil {
				return "", err
			}
		}
	}
	if group := groupOf(class.Spec); group != "" {
		return "resource group " + strings.ToLower(group), nil
	}
	return "subscription", nil
}

// Account implements provider.Accounter: it is the subscription.
func (d *Driver) Account(class provider.Class) (string, error) {
	a, err := parseCredentials(class.Credentials)
	return a.subscription, err
}

// page reads one page of virtual machines, the first one or what another's link leads to.
// https://learn.microsoft.com/rest/api/compute/virtual-machines/list
func (c *clients) page(ctx context.Context, group, link string) ([]*armcompute.VirtualMachine, string, error) {
	const attempted = "list virtual machines"
	if link != "" && !c.leadsHere(link) {
		return nil, "", provider.Errorf(provider.InvalidArgument, "%s: the page to continue with is not Azure's", attempted)
	}
	if group == "" {
		out, err := onePage(ctx, c.vms.NewListAllPager(nil), link)
		if err != nil {
			return nil, "", translate(ctx, err, attempted)
		}
		return once(out.Value, vmID), value(out.NextLink), nil
	}
	out, err := onePage(ctx, c.vms.NewListPager(group, nil), link)
	if codeOf(err) == "ResourceGroupNotFound" {
		return nil, "", nil // Nothing is in a group that is not there.
	}
	if err != nil {
		return nil, "", translate(ctx, err, attempted)
	}
	return once(out.Value, vmID), value(out.NextLink), nil
}

func vmID(vm *armcompute.VirtualMachine) *string { return vm.ID }

// once leaves out what a page has a second time. Resource IDs differ in case from one answer to the next.
func once[T any](page []*T, id func(*T) *string) []*T {
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

// leadsHere reports whether a link is to the endpoint that tokens may be sent to.
func (c *clients) leadsHere(link string) bool {
	to, err := url.Parse(link)
	here, hereErr := url.Parse(c.endpoint)
	return err == nil && hereErr == nil && to.Scheme == here.Scheme && strings.EqualFold(to.Host, here.Host) &&
		to.User == nil
}

// onePage takes a pager to the page that a link leads to. The SDK's pagers continue from the page before, of which
// only the link counts.
func onePage[T any](ctx context.Context, pager *runtime.Pager[T], link string) (T, error) {
	if link != "" {
		before, err := json.Marshal(map[string]string{"nextLink": link})
		if err == nil {
			err = json.Unmarshal(before, pager)
		}
		if err == nil {
			_, err = pager.NextPage(ctx) // The page before, again.
		}
		if err != nil {
			var none T
			return none, fmt.Errorf("continue a list: %w", err)
		}
	}
	return pager.NextPage(ctx)
}
