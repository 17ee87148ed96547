package driver

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/pagination"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

// pageSize is the requested number of entries per page. Services may return fewer entries.
const pageSize = 500

// List returns these kinds of objects in this order. Servers come first. Otherwise, the parts of a server that is just
// being created would look like leftovers.
const (
	kindServers = "servers"
	kindPorts   = "ports"
	kindVolumes = "volumes"
)

// List implements provider.Driver. It returns the servers of the project, and then the parts without a server.
func (d *Driver) List(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
	if req.ClusterID == "" {
		return provider.ListPage{}, provider.Errorf(provider.InvalidArgument, "list servers: the cluster ID is empty")
	}
	c, err := d.clients(ctx, req.Class.Credentials, regionOf(req.Class.Spec))
	if err != nil {
		return provider.ListPage{}, err
	}
	kind, marker := kindServers, ""
	if req.Continue != "" {
		var ok bool
		if kind, marker, ok = strings.Cut(req.Continue, " "); !ok || marker != "" && !idFormat.MatchString(marker) {
			return provider.ListPage{}, provider.Errorf(provider.InvalidArgument,
				"list servers: the continue token is not from this provider")
		}
	}
	switch kind {
	case kindServers:
		return c.serverPage(ctx, req.ClusterID, marker)
	case kindPorts:
		return c.portPage(ctx, req.ClusterID, marker)
	case kindVolumes:
		return c.volumePage(ctx, req.ClusterID, marker)
	}
	return provider.ListPage{}, provider.Errorf(provider.InvalidArgument,
		"list servers: the continue token has an unknown kind %.16q", kind)
}

// ListScope implements provider.Scoper. The scope is the project of the credentials in one region.
func (d *Driver) ListScope(class provider.Class) (string, error) {
	region := regionOf(class.Spec)
	if region == "" {
		a, err := d.options.parse(class.Credentials)
		if err != nil {
			return "", err
		}
		region = a.region
	}
	return "region " + region, nil
}

// Account implements provider.Accounter. The account is the URL of the identity service with the project's ID or name
// in the credentials. It is empty for an application credential, which does not contain its project.
func (d *Driver) Account(class provider.Class) (string, error) {
	a, err := d.options.parse(class.Credentials)
	if err != nil || a.auth.Scope == nil {
		return "", err
	}
	scope, service := a.auth.Scope, strings.TrimRight(a.auth.IdentityEndpoint, "/")
	if scope.ProjectID != "" {
		return service + " project " + scope.ProjectID, nil
	}
	return service + " project " + cmp.Or(scope.DomainID, scope.DomainName) + "/" + scope.ProjectName, nil
}

// continueToken names the last entry of this page or, if the kind has no more pages, the next kind. After the last page
// of the last kind, the token is empty.
func continueToken(kind, last string, more bool) string {
	switch {
	case more && last != "":
		return kind + " " + last
	case kind == kindServers:
		return kindPorts + " "
	case kind == kindPorts:
		return kindVolumes + " "
	}
	return ""
}

// readPage reads one page of a list, and reports whether there are more pages.
func readPage[T any](ctx context.Context, pager pagination.Pager, extract func(pagination.Page) ([]T, error)) (all []T,
	more bool, err error) {
	err = pager.EachPage(ctx, func(_ context.Context, page pagination.Page) (bool, error) {
		var err error
		if all, err = extract(page); err != nil {
			return false, err
		}
		next, err := page.NextPageURL()
		more = next != ""
		return false, err
	})
	return all, more, err
}

func (c *clients) serverPage(ctx context.Context, cluster, marker string) (provider.ListPage, error) {
	all, more, err := readPage(ctx, servers.List(c.compute, servers.ListOpts{Limit: pageSize, Marker: marker}),
		servers.ExtractServers)
	if err != nil {
		return provider.ListPage{}, translate(ctx, err, "list servers")
	}
	page, last, seen := provider.ListPage{}, "", map[string]bool{}
	for i := range all {
		s := &all[i]
		last = s.ID
		if s.Metadata[provider.TagCluster] != cluster || s.Status == "DELETED" || seen[s.ID] {
			continue
		}
		seen[s.ID] = true
		in, err := c.convert(s)
		if err != nil {
			return provider.ListPage{}, err
		}
		page.Instances = append(page.Instances, *in)
	}
	page.Continue = continueToken(kindServers, last, more)
	return page, nil
}

func (c *clients) portPage(ctx context.Context, cluster, marker string) (provider.ListPage, error) {
	all, more, err := readPage(ctx, ports.List(c.network, ports.ListOpts{Limit: pageSize, Marker: marker}),
		ports.ExtractPorts)
	if err != nil {
		return provider.ListPage{}, translate(ctx, err, "list ports")
	}
	page, last, seen, lookup := provider.ListPage{}, "", map[string]bool{}, c.newServerLookup()
	for i := range all {
		p := &all[i]
		last = p.ID
		owner, uid, key, ok := parseDescription(p.Description)
		if !ok || owner != cluster || seen[p.ID] {
			continue
		}
		seen[p.ID] = true
		if p.DeviceID != "" {
			exists, err := lookup.exists(ctx, p.DeviceID)
			if err != nil {
				return provider.ListPage{}, err
			}
			if exists {
				continue
			}
		}
		page.Leftovers = append(page.Leftovers, leftover("port", p.ID, p.CreatedAt, owner, uid, key))
	}
	page.Continue = continueToken(kindPorts, last, more)
	return page, nil
}

func (c *clients) volumePage(ctx context.Context, cluster, marker string) (provider.ListPage, error) {
	if c.volume == nil {
		return provider.ListPage{}, nil
	}
	all, more, err := readPage(ctx, volumes.List(c.volume, volumes.ListOpts{Limit: pageSize, Marker: marker}),
		volumes.ExtractVolumes)
	if err != nil {
		return provider.ListPage{}, translate(ctx, err, "list volumes")
	}
	page, last, seen, lookup := provider.ListPage{}, "", map[string]bool{}, c.newServerLookup()
	for i := range all {
		v := &all[i]
		last = v.ID
		if v.Metadata[provider.TagCluster] != cluster || v.Metadata[provider.TagMachineUID] == "" || v.Status == "deleting" ||
			seen[v.ID] {
			continue
		}
		seen[v.ID] = true
		used := false
		for _, a := range v.Attachments {
			exists, err := lookup.exists(ctx, a.ServerID)
			if err != nil {
				return provider.ListPage{}, err
			}
			used = used || exists
		}
		if !used {
			page.Leftovers = append(page.Leftovers, leftover("volume", v.ID, v.CreatedAt, cluster,
				types.UID(v.Metadata[provider.TagMachineUID]), v.Metadata[provider.TagMachine]))
		}
	}
	page.Continue = continueToken(kindVolumes, last, more)
	return page, nil
}

func leftover(kind, id string, created time.Time, cluster string, uid types.UID, key string) provider.Leftover {
	return provider.Leftover{ID: kind + "/" + id, LaunchTime: created, ClusterID: cluster, MachineUID: uid, MachineKey: key}
}
