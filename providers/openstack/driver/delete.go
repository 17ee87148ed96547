package driver

import (
	"context"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"machinist.dev/machinist/pkg/provider"
)

// Delete implements provider.Driver. Ports and some volumes remain when their server is gone, so the driver deletes the
// server first and its parts afterwards.
func (d *Driver) Delete(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	c, id, err := d.clientsFor(ctx, req.Class, req.ProviderID, req.Scope)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	var left []string
	if id != "" {
		left, err = c.deleteByProviderID(ctx, id, req.Scope, own)
	} else {
		left, err = c.deleteByOwner(ctx, own)
	}
	if err != nil {
		return provider.DeleteResult{}, err
	}
	return provider.DeleteResult{Gone: len(left) == 0, Remaining: strings.Join(left, "; ")}, nil
}

// deleteByProviderID deletes one server and its parts, and returns what still exists. If the owner has no other server,
// all parts of the owner are deleted. Otherwise, only the parts of this server are deleted.
func (c *clients) deleteByProviderID(ctx context.Context, id, scope string, own owner) (left []string, err error) {
	s, err := c.get(ctx, id)
	switch {
	case err == nil:
		return []string{leftServer(s)}, c.terminate(ctx, s, own)
	case !provider.IsNotFound(err):
		return nil, err
	}
	others, err := c.serversNamed(ctx, "^"+own.base(), own)
	if err != nil {
		return nil, err
	}
	if len(others) == 0 {
		return c.deleteParts(ctx, own, "")
	}
	_, name, ok := parseScope(scope)
	if !ok || name == "" {
		return nil, nil // The deletion of the other server deletes all parts.
	}
	return c.deleteParts(ctx, own, name)
}

func leftServer(s *servers.Server) string { return "server " + s.ID + " (" + s.Status + ")" }

// deleteByOwner deletes all servers and parts of an owner, and returns what still exists.
func (c *clients) deleteByOwner(ctx context.Context, own owner) (left []string, err error) {
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
	return c.deleteParts(ctx, own, "")
}

// terminate deletes a server of the owner, unless its deletion was already requested.
func (c *clients) terminate(ctx context.Context, s *servers.Server, own owner) error {
	in, err := c.convert(s)
	if err != nil {
		return err
	}
	if err := c.checkOwner(s, in, own); err != nil {
		return err
	}
	if err := c.claimParts(ctx, s, own); err != nil {
		return err
	}
	attempted := "delete server " + s.ID
	if s.Status == "SOFT_DELETED" {
		// Without this call, Nova would keep the server and its ports for several days.
		err = servers.ForceDelete(ctx, c.compute, s.ID).ExtractErr()
	} else if in.State != provider.StateTerminating {
		err = servers.Delete(ctx, c.compute, s.ID).ExtractErr()
	}
	if isConflict(err) {
		attempted += answerText(err)
	}
	if err != nil && !isAbsent(err) {
		return translate(ctx, err, attempted)
	}
	return nil
}

// deleteParts requests the deletion of the owner's unused ports and volumes, and returns what still exists. With a
// server name, it deletes only parts of that server.
func (c *clients) deleteParts(ctx context.Context, own owner, server string) (left []string, err error) {
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
	lookup := c.newServerLookup()
	left, err = c.deletePorts(ctx, allPorts, lookup)
	if err != nil {
		return nil, err
	}
	leftVolumes, err := c.deleteVolumes(ctx, allVolumes, lookup)
	return append(left, leftVolumes...), err
}
