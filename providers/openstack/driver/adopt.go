package driver

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/machine"
)

// missingMark is the end of an error message that begins with the name of a server.
func missingMark(server string) string {
	return " lacks the metadata " + metaAdoptable + "=true: set it to allow the adoption: openstack server set --property " +
		metaAdoptable + "=true " + server
}

// Adopt implements provider.Adopter. The metadata of the server must contain machinist-adoptable=true. Otherwise, every
// user who may create Machines could delete any server of the project, because the credentials may reach all of them.
// This entry is unnecessary if the server's metadata contain the ID of a former cluster, and List returns the server
// for the class.
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
	// Record the current class, so that Update detects when the Machine later gets a class that requires a different
	// server.
	updated[metaSpec] = specHash(spec)
	replaces := req.Replaces(in)
	if !replaces {
		for key := range own.identity() {
			if got, found := s.Metadata[key]; found && got != updated[key] {
				if err := in.OwnedBy(own.cluster, own.machine); err != nil {
					return nil, err
				}
				return nil, provider.Errorf(provider.FailedPrecondition, "server %s is tagged for machine %.128q", id, got)
			}
		}
	}
	where := c.outsideOf(s, spec)
	if !own.owns(s.Metadata) && s.Metadata[metaAdoptable] != "true" && (!replaces || where != "") {
		return nil, provider.Errorf(provider.FailedPrecondition,
			"server %s%s%s", id, where, missingMark(id))
	}
	hasParts, err := c.hasPartsOfOtherSystem(ctx, s)
	if err != nil {
		return nil, err
	}
	if hasParts {
		updated[metaParts] = "true"
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

// outsideOf returns the reason why List does not return the server for this specification, or an empty string if List
// returns it. The credentials of an administrator also reach other projects, and a provider ID can contain another
// region.
func (c *clients) outsideOf(s *servers.Server, spec machine.Spec) string {
	region := cmp.Or(spec.Region, c.defaultRegion)
	switch {
	case region != "" && c.region != region:
		return fmt.Sprintf(", which is in region %.128q and not in region %.128q of the class,", c.region, region)
	case c.project != "" && s.TenantID != "" && s.TenantID != c.project:
		return fmt.Sprintf(", which is in project %.64q and not in project %.64q of the credentials,", s.TenantID, c.project)
	}
	return ""
}
