package driver

import (
	"context"
	"maps"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/machine"
)

// Adopt implements provider.Adopter. A server is adopted if its metadata have machinist-adoptable=true: the credentials
// may reach all of a project, and who may create a Machine must not be able to delete whatever is in it.
func (d *Driver) Adopt(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	region, id, err := regionFor(req.ProviderID, "", req.Class.Spec)
	if err != nil {
		return nil, err
	}
	if id == "" {
		return nil, provider.Errorf(provider.InvalidArgument, "adopt server: the provider ID is empty")
	}
	c, err := d.clients(ctx, req.Class.Credentials, region)
	if err != nil {
		return nil, err
	}
	s, err := c.get(ctx, id)
	if err != nil {
		return nil, err
	}
	in, err := c.convert(s)
	if err != nil {
		return nil, err
	}
	wanted := own.identity()
	// The server counts as made from what the class says now. Of another class that a machine comes to have later, Update
	// must answer that it needs another server.
	wanted[metaSpec] = specHash(spec)
	if !req.Replaces(in) {
		for key := range own.identity() {
			if got, there := s.Metadata[key]; there && got != wanted[key] {
				if err := in.OwnedBy(own.cluster, own.machine); err != nil {
					return nil, err
				}
				return nil, provider.Errorf(provider.FailedPrecondition, "server %s is tagged for machine %.128q", id, got)
			}
		}
		if !own.owns(s.Metadata) && s.Metadata[metaAdoptable] != "true" {
			return nil, provider.Errorf(provider.FailedPrecondition,
				"server %s lacks the metadata %s=true: set it to let the server be adopted", id, metaAdoptable)
		}
	}
	maps.DeleteFunc(wanted, func(key, text string) bool { return s.Metadata[key] == text })
	if len(wanted) > 0 {
		metadata, err := servers.UpdateMetadata(ctx, c.compute, id, servers.MetadataOpts(wanted)).Extract()
		if err != nil {
			return nil, translate(ctx, err, "adopt server "+id)
		}
		s.Metadata = metadata
	}
	return c.convert(s)
}
