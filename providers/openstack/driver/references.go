package driver

import (
	"context"
	"slices"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servergroups"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	"github.com/gophercloud/gophercloud/v2/pagination"

	"machinist.dev/machinist/providers/openstack/machine"
)

// named is a thing of OpenStack's that a specification refers to.
type named struct{ id, name string }

// pick returns the ID of the thing that a specification means: the one with that ID, else the only one with that name.
func pick(field, kind, ref string, all []named) (string, error) {
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
		return "", unserved(field, "the project has no %s %.128q", kind, ref)
	case 1:
		return found[0], nil
	}
	return "", unserved(field, "%d %ss are called %.128q: name one by its ID", len(found), kind, ref)
}

// every goes through all pages of a list.
func every[T any](ctx context.Context, pager pagination.Pager,
	extract func(pagination.Page) ([]T, error)) ([]T, error) {
	page, err := pager.AllPages(ctx)
	if err != nil {
		return nil, err
	}
	return extract(page)
}

// listed calls a list and makes of each entry what pick compares.
func listed[T any](ctx context.Context, attempted string, pager pagination.Pager,
	extract func(pagination.Page) ([]T, error), entry func(T) named) ([]named, error) {
	all, err := every(ctx, pager, extract)
	if err != nil {
		return nil, translate(ctx, err, attempted)
	}
	out := make([]named, len(all))
	for i := range all {
		out[i] = entry(all[i])
	}
	return out, nil
}

// flavor returns a flavor by ID or name.
func (c *clients) flavor(ctx context.Context, ref string) (*flavors.Flavor, error) {
	all, err := every(ctx, flavors.ListDetail(c.compute, flavors.ListOpts{}), flavors.ExtractFlavors)
	if err != nil {
		return nil, translate(ctx, err, "list flavors")
	}
	names := make([]named, len(all))
	for i := range all {
		names[i] = named{all[i].ID, all[i].Name}
	}
	id, err := pick("flavor", "flavor", ref, names)
	if err != nil {
		return nil, err
	}
	return &all[slices.IndexFunc(all, func(f flavors.Flavor) bool { return f.ID == id })], nil
}

// imageOf returns the image by ID, or the newest active one with the name or the tags.
func (c *clients) imageOf(ctx context.Context, i machine.Image) (*images.Image, error) {
	if c.image == nil {
		return nil, unserved("image", "OpenStack's catalog has no service for images")
	}
	if i.ID != "" {
		image, err := images.Get(ctx, c.image, i.ID).Extract()
		if absent(err) {
			return nil, unserved("image.id", "there is no image %.128q", i.ID)
		}
		if err != nil {
			return nil, translate(ctx, err, "get image")
		}
		if image.Status != images.ImageStatusActive {
			return nil, unserved("image.id", "image %.128q is %s, not active", i.ID, image.Status)
		}
		return image, nil
	}
	all, err := every(ctx, images.List(c.image, images.ListOpts{Name: i.Name, Tags: i.Tags,
		Status: images.ImageStatusActive}), images.ExtractImages)
	if err != nil {
		return nil, translate(ctx, err, "list images")
	}
	if len(all) == 0 {
		if i.Name != "" {
			return nil, unserved("image.name", "there is no active image called %.128q", i.Name)
		}
		return nil, unserved("image.tags", "there is no active image with the tags %.256q", i.Tags)
	}
	newest := slices.MaxFunc(all, func(a, b images.Image) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return &newest, nil
}

// networkOf returns the ID of a network.
func (c *clients) networkOf(ctx context.Context, field, ref string) (string, error) {
	all, err := listed(ctx, "list networks", networks.List(c.network, networks.ListOpts{}), networks.ExtractNetworks,
		func(n networks.Network) named { return named{n.ID, n.Name} })
	if err != nil {
		return "", err
	}
	return pick(field, "network", ref, all)
}

// subnetOf returns the ID of a subnet of a network.
func (c *clients) subnetOf(ctx context.Context, field, ref, network string) (string, error) {
	all, err := listed(ctx, "list subnets", subnets.List(c.network, subnets.ListOpts{NetworkID: network}),
		subnets.ExtractSubnets, func(s subnets.Subnet) named { return named{s.ID, s.Name} })
	if err != nil {
		return "", err
	}
	return pick(field, "subnet of the port's network", ref, all)
}

// existingPort returns the ID of a port that the specification names.
func (c *clients) existingPort(ctx context.Context, field, ref string) (string, error) {
	all, err := listed(ctx, "list ports", ports.List(c.network, ports.ListOpts{}), ports.ExtractPorts,
		func(p ports.Port) named { return named{p.ID, p.Name} })
	if err != nil {
		return "", err
	}
	return pick(field, "port", ref, all)
}

// groupsOf returns the IDs of security groups, sorted. Other projects' groups of the same name do not count where the
// account sees them.
func (c *clients) groupsOf(ctx context.Context, field string, refs []string) ([]string, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	all, err := listed(ctx, "list security groups", groups.List(c.network, groups.ListOpts{}), groups.ExtractGroups,
		func(g groups.SecGroup) named { return named{g.ID, g.Name} })
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(refs))
	for _, ref := range refs {
		id, err := pick(field, "security group", ref, all)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// serverGroupOf returns the ID of a server group.
func (c *clients) serverGroupOf(ctx context.Context, ref string) (string, error) {
	all, err := listed(ctx, "list server groups", servergroups.List(c.compute, servergroups.ListOpts{}),
		servergroups.ExtractServerGroups, func(g servergroups.ServerGroup) named { return named{g.ID, g.Name} })
	if err != nil {
		return "", err
	}
	return pick("serverGroup", "server group", ref, all)
}

// pause waits, unless the call ends before.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
