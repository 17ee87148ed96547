package driver

import (
	"context"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/aws/machine"
)

// tagAdoptable is the mark that Adopt requires on an instance: only users of AWS can set it. Its value is "true".
const tagAdoptable = "machinist-adoptable"

// Adopt implements provider.Adopter. Adopt sets the tags on the instance only. Its volumes and network interfaces
// keep their tags, so EC2 deletes only those that have DeleteOnTermination. EC2 has no conditional requests: if two
// clusters adopt an instance in the same moment, the later call wins, and the next Get shows its tags.
func (d *Driver) Adopt(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	at, err := locate(req.ProviderID, "")
	if err != nil {
		return nil, err
	}
	if at.region != spec.Region {
		return nil, provider.Errorf(provider.FailedPrecondition,
			"instance %s is in region %s, and the class is for region %s",
			at.id, at.region, spec.Region)
	}
	c, err := d.clients(req.Class.Credentials, at.region)
	if err != nil {
		return nil, err
	}
	found, err := c.get(ctx, at.id)
	if err != nil {
		return nil, err
	}
	if isTerminated(found) {
		return nil, provider.Errorf(provider.NotFound, "instance %s is terminated", at.id)
	}
	in, tags := c.convert(found), tagMap(found.Tags)
	switch foreign := in.ClusterID != "" && in.ClusterID != own.cluster || in.MachineUID != "" &&
		in.MachineUID != own.machine.UID; {
	case in.ProviderID != req.ProviderID:
		return nil, provider.Errorf(provider.FailedPrecondition, "the provider ID of instance %s is %s, not %s", at.id,
			in.ProviderID, req.ProviderID)
	case in.State == provider.StateTerminating:
		return nil, provider.Errorf(provider.FailedPrecondition, "instance %s is being deleted", at.id)
	case foreign && !req.Replaces(in):
		return nil, in.OwnedBy(own.cluster, own.machine)
	case !foreign && tags[tagAdoptable] != "true" && !own.owns(tags):
		return nil, provider.Errorf(provider.FailedPrecondition, "instance %s has no tag %s=true; set the tag in AWS if "+
			"Machinist may manage and delete the instance", at.id, tagAdoptable)
	}
	wanted := own.identityTags(req.Tags)
	if err := c.tag(ctx, []string{at.id}, wanted); err != nil {
		return nil, err
	}
	for key, value := range wanted {
		tags[key] = value
	}
	found.Tags = tagList(tags)
	return c.convert(found), nil
}
