package driver

import (
	"context"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"machinist.dev/machinist/pkg/provider"
)

// Delete implements provider.Driver. The server goes first. Its ports stay when it goes, and so may its volumes: they
// are removed when it is gone.
func (d *Driver) Delete(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	region, id, err := regionFor(req.ProviderID, req.Scope, req.Class.Spec)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	c, err := d.clients(ctx, req.Class.Credentials, region)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	var left []string
	if id != "" {
		left, err = c.deleteOne(ctx, id, req.Scope, own)
	} else {
		left, err = c.deleteAll(ctx, own)
	}
	if err != nil {
		return provider.DeleteResult{}, err
	}
	return provider.DeleteResult{Gone: len(left) == 0, Left: strings.Join(left, "; ")}, nil
}

// deleteOne removes one server, and returns what is left. Its parts are all of the owner's, unless the owner has
// another server: then they are those that were made under its name.
func (c *clients) deleteOne(ctx context.Context, id, scope string, own owner) (left []string, err error) {
	s, err := c.get(ctx, id)
	switch {
	case err == nil:
		return []string{leftServer(s)}, c.terminate(ctx, s, own)
	case !provider.IsNotFound(err):
		return nil, err
	}
	others, err := c.named(ctx, "^"+own.base(), own)
	if err != nil {
		return nil, err
	}
	if len(others) == 0 {
		return c.removeParts(ctx, own, "")
	}
	_, name, ok := parseScope(scope)
	if !ok || name == "" {
		return nil, nil // The other server's deletion takes all parts.
	}
	return c.removeParts(ctx, own, name)
}

// leftServer names a server that is not gone yet.
func leftServer(s *servers.Server) string { return "server " + s.ID + " (" + s.Status + ")" }

// deleteAll removes all servers and all parts of an owner, and returns what is left.
func (c *clients) deleteAll(ctx context.Context, own owner) (left []string, err error) {
	all, err := c.serversOf(ctx, own)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if err := c.terminate(ctx, s, own); err != nil {
			return nil, err
		}
		left = append(left, leftServer(s))
	}
	if len(left) > 0 {
		return left, nil
	}
	return c.removeParts(ctx, own, "")
}

// terminate asks for the end of a server that is the owner's, unless that was done.
func (c *clients) terminate(ctx context.Context, s *servers.Server, own owner) error {
	in, err := c.convert(s)
	if err != nil {
		return err
	}
	if err := c.mine(s, in, own); err != nil {
		return err
	}
	attempted := "delete server " + s.ID
	if s.Status == "SOFT_DELETED" {
		// It would be kept for days, with its ports.
		err = servers.ForceDelete(ctx, c.compute, s.ID).ExtractErr()
	} else if in.State != provider.StateTerminating {
		err = servers.Delete(ctx, c.compute, s.ID).ExtractErr()
	}
	if conflicts(err) {
		attempted += inItsWords(err)
	}
	if err != nil && !absent(err) {
		return translate(ctx, err, attempted)
	}
	return nil
}

// removeParts asks for the deletion of the owner's ports and volumes that no server has, of those made for one server
// where a name is given. It returns what is left.
func (c *clients) removeParts(ctx context.Context, own owner, server string) (left []string, err error) {
	allPorts, err := c.portsOf(ctx, own)
	if err != nil {
		return nil, err
	}
	allVolumes, err := c.volumesOf(ctx, own)
	if err != nil {
		return nil, err
	}
	if server != "" {
		var somePorts []ports.Port
		for _, p := range allPorts {
			if serverOfPort(p.Name) == server {
				somePorts = append(somePorts, p)
			}
		}
		var someVolumes []volumes.Volume
		for _, v := range allVolumes {
			if v.Metadata[metaServer] == server {
				someVolumes = append(someVolumes, v)
			}
		}
		allPorts, allVolumes = somePorts, someVolumes
	}
	servers := c.presence()
	left, err = c.removePorts(ctx, allPorts, servers)
	if err != nil {
		return nil, err
	}
	leftVolumes, err := c.removeVolumes(ctx, allVolumes, servers)
	return append(left, leftVolumes...), err
}
