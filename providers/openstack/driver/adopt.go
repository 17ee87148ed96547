package driver

import (
	"context"
	"maps"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/machine"
)

// Adopt implements provider.Adopter. It adopts a server only if the server's metadata have machinist-adoptable=true.
// The credentials may reach every server of a project, and a user who may create Machines must not be able to delete
// any of them.
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
	updated := own.identity()
	// Record the server as created from the class as it is now. If the machine later gets a class that requires another
	// server, Update can then detect this.
	updated[metaSpec] = specHash(spec)
	if !req.Replaces(in) {
		for key := range own.identity() {
			if got, found := s.Metadata[key]; found && got != updated[key] {
				if err := in.OwnedBy(own.cluster, own.machine); err != nil {
					return nil, err
				}
				return nil, provider.Errorf(provider.FailedPrecondition, "server %s is tagged for machine %.128q", id, got)
			}
		}
		if !own.owns(s.Metadata) && s.Metadata[metaAdoptable] != "true" {
			return nil, provider.Errorf(provider.FailedPrecondition,
				"server %s lacks the metadata %s=true: set it to allow the adoption", id, metaAdoptable)
		}
	}
	maps.DeleteFunc(updated, func(key, text string) bool { return s.Metadata[key] == text })
	if len(updated) > 0 {
		metadata, err := servers.UpdateMetadata(ctx, c.compute, id, servers.MetadataOpts(updated)).Extract()
		if err != nil {
			return nil, translate(ctx, err, "adopt server "+id)
		}
		s.Metadata = metadata
	}
	return c.convert(s)
}
