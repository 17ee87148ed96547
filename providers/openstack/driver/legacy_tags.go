package driver

import (
	"context"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"machinist.dev/machinist/pkg/provider"
)

// Release implements provider.Importer. Each call of Nova removes one name, so that concurrent changes of other
// metadata are kept. Ports and volumes have no tags of a collector.
func (d *Driver) Release(ctx context.Context, req provider.ReleaseRequest) error {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return err
	}
	c, id, err := d.clientsFor(ctx, req.Class, req.ProviderID, req.Scope)
	if err != nil {
		return err
	}
	s, err := c.get(ctx, id)
	if err != nil {
		return err
	}
	in, err := c.convert(s)
	if err != nil {
		return err
	}
	if err := c.checkOwner(s, in, own); err != nil {
		return err
	}
	return c.removeMetadata(ctx, id, roleKeysOf(s.Metadata))
}

// Disown implements provider.Importer.
func (d *Driver) Disown(ctx context.Context, req provider.DisownRequest) error {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return err
	}
	c, id, err := d.clientsFor(ctx, req.Class, req.ProviderID, req.Scope)
	if err != nil {
		return err
	}
	s, err := c.get(ctx, id)
	if provider.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	cluster, uid := s.Metadata[provider.TagCluster], s.Metadata[provider.TagMachineUID]
	// After an interrupted call, one of them may be missing.
	if cluster != "" && cluster != own.cluster || uid != "" && uid != string(own.machine.UID) {
		return provider.Errorf(provider.FailedPrecondition, "server %s belongs to machine %.128q (%.64q) of cluster %.128q",
			id, s.Metadata[provider.TagMachine], uid, cluster)
	}
	var names []string
	for _, name := range []string{metaSpec, metaVersion, metaNames, metaTags, metaParts, provider.TagMachine,
		provider.TagMachineUID, provider.TagCluster} {
		if _, found := s.Metadata[name]; found {
			names = append(names, name)
		}
	}
	return c.removeMetadata(ctx, id, names)
}

func (c *clients) removeMetadata(ctx context.Context, server string, names []string) error {
	for _, name := range names {
		if err := servers.DeleteMetadatum(ctx, c.compute, server, name).ExtractErr(); err != nil && !isAbsent(err) {
			return translate(ctx, err, "remove the metadata "+name+" of server "+server)
		}
	}
	return nil
}
