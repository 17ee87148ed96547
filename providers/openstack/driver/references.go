package driver

import (
	"context"
	"slices"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servergroups"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	"github.com/gophercloud/gophercloud/v2/pagination"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/openstack/machine"
)

// candidate is an object that a specification may refer to.
type candidate struct{ id, name string }

// selectID returns the object with this ID or, if there is none, the only object with this name.
func selectID(field, kind, ref string, all []candidate) (string, error) {
	var found []string
	for _, n := range all {
		if n.id == ref {
			return n.id, nil
		}
		if n.name == ref {
			found = append(found, n.id)
		}
	}
	switch len(found) {
	case 0:
		return "", notOffered(field, "the project has no %s with the name or ID %.128q", kind, ref)
	case 1:
		return found[0], nil
	}
	return "", notOffered(field, "the name %.128q is not unique: %d objects of the kind %q have it; use the ID", ref,
		len(found), kind)
}

// allPages reads all pages of a list. Links must not lead to another host, because gophercloud sends the access token
// there.
func allPages[T any](ctx context.Context, service *gophercloud.ServiceClient, pager pagination.Pager,
	extract func(pagination.Page) ([]T, error)) (all []T, err error) {
	err = pager.EachPage(httpapi.List(ctx), func(_ context.Context, page pagination.Page) (bool, error) {
		entries, err := extract(page)
		if err != nil {
			return false, err
		}
		all = append(all, entries...)
		next, err := page.NextPageURL()
		if err != nil || next == "" {
			return false, err
		}
		if err := httpapi.CheckLink(service.Endpoint, next); err != nil {
			return false, provider.Errorf(provider.Internal,
				"list of OpenStack's service %q: %s; the service must return links to its own endpoint", service.Type, err)
		}
		return true, nil
	})
	return all, err
}

func listCandidates[T any](ctx context.Context, attempted string, service *gophercloud.ServiceClient,
	pager pagination.Pager, extract func(pagination.Page) ([]T, error), entry func(T) candidate) ([]candidate, error) {
	all, err := allPages(ctx, service, pager, extract)
	if err != nil {
		return nil, translate(ctx, err, attempted)
	}
	out := make([]candidate, len(all))
	for i := range all {
		out[i] = entry(all[i])
	}
	return out, nil
}

func (c *clients) findFlavor(ctx context.Context, ref string) (*flavors.Flavor, error) {
	all, err := allPages(ctx, c.compute, flavors.ListDetail(c.compute, flavors.ListOpts{}), flavors.ExtractFlavors)
	if err != nil {
		return nil, translate(ctx, err, "list flavors")
	}
	names := make([]candidate, len(all))
	for i := range all {
		names[i] = candidate{all[i].ID, all[i].Name}
	}
	id, err := selectID("flavor", "flavor", ref, names)
	if err != nil {
		return nil, err
	}
	return &all[slices.IndexFunc(all, func(f flavors.Flavor) bool { return f.ID == id })], nil
}

// findImage returns the image with an ID, or the newest active image with a name or with tags.
func (c *clients) findImage(ctx context.Context, i machine.Image) (*images.Image, error) {
	if c.image == nil {
		return nil, notOffered("image", "OpenStack's catalog has no image service")
	}
	if i.ID != "" {
		image, err := images.Get(ctx, c.image, i.ID).Extract()
		if isAbsent(err) {
			return nil, notOffered("image.id", "the image %.128q does not exist", i.ID)
		}
		if err != nil {
			return nil, translate(ctx, err, "get image")
		}
		if image.Status != images.ImageStatusActive {
			return nil, notOffered("image.id", "image %.128q is %s, not active", i.ID, image.Status)
		}
		return image, nil
	}
	all, err := allPages(ctx, c.image, images.List(c.image, images.ListOpts{Name: i.Name, Tags: i.Tags,
		Status: images.ImageStatusActive}), images.ExtractImages)
	if err != nil {
		return nil, translate(ctx, err, "list images")
	}
	if len(all) == 0 {
		if i.Name != "" {
			return nil, notOffered("image.name", "the project has no active image with the name %.128q", i.Name)
		}
		return nil, notOffered("image.tags", "the project has no active image with the tags %.256q", i.Tags)
	}
	newest := slices.MaxFunc(all, func(a, b images.Image) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return &newest, nil
}

func (c *clients) networkID(ctx context.Context, field, ref string) (string, error) {
	all, err := listCandidates(ctx, "list networks", c.network, networks.List(c.network, networks.ListOpts{}),
		networks.ExtractNetworks, func(n networks.Network) candidate { return candidate{n.ID, n.Name} })
	if err != nil {
		return "", err
	}
	return selectID(field, "network", ref, all)
}

func (c *clients) subnetID(ctx context.Context, field, ref, network string) (string, error) {
	all, err := listCandidates(ctx, "list subnets", c.network, subnets.List(c.network, subnets.ListOpts{NetworkID: network}),
		subnets.ExtractSubnets, func(s subnets.Subnet) candidate { return candidate{s.ID, s.Name} })
	if err != nil {
		return "", err
	}
	return selectID(field, "subnet of the port's network", ref, all)
}

func (c *clients) existingPortID(ctx context.Context, field, ref string) (string, error) {
	all, err := listCandidates(ctx, "list ports", c.network, ports.List(c.network, ports.ListOpts{}), ports.ExtractPorts,
		func(p ports.Port) candidate { return candidate{p.ID, p.Name} })
	if err != nil {
		return "", err
	}
	return selectID(field, "port", ref, all)
}

// securityGroupIDs returns sorted IDs. If the account sees other projects, several groups may have the same name.
func (c *clients) securityGroupIDs(ctx context.Context, field string, refs []string) ([]string, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	all, err := listCandidates(ctx, "list security groups", c.network, groups.List(c.network, groups.ListOpts{}), groups.ExtractGroups,
		func(g groups.SecGroup) candidate { return candidate{g.ID, g.Name} })
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(refs))
	for _, ref := range refs {
		id, err := selectID(field, "security group", ref, all)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func (c *clients) serverGroupID(ctx context.Context, ref string) (string, error) {
	all, err := listCandidates(ctx, "list server groups", c.compute, servergroups.List(c.compute, servergroups.ListOpts{}),
		servergroups.ExtractServerGroups, func(g servergroups.ServerGroup) candidate { return candidate{g.ID, g.Name} })
	if err != nil {
		return "", err
	}
	return selectID("serverGroup", "server group", ref, all)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
