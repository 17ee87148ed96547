package driver

import (
	"context"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// SetPower implements provider.Power. Reads may be outdated, so the returned state is that in the answer to a write.
func (d *Driver) SetPower(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	endpoint := d.endpointOf(req.Scope, req.Class.Spec)
	client, err := d.client(endpoint, req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	in, err := find(ctx, client, req.ProviderID, own)
	if err != nil {
		return nil, err
	}
	if in, err = client.ownedInstance(ctx, in, own); err != nil {
		return nil, err
	}
	var after *simcloud.Instance
	switch req.Action {
	case provider.PowerOn:
		after, err = client.StartInstance(ctx, in.ID)
	case provider.PowerOff, provider.PowerForceOff:
		after, err = client.StopInstance(ctx, in.ID, simcloud.StopInstanceRequest{
			Force: req.Action == provider.PowerForceOff, ReleaseCapacity: !req.KeepCapacity,
		})
	default:
		return nil, provider.Errorf(provider.InvalidArgument, "the power action %.64q is not supported", req.Action)
	}
	if simcloud.CodeOf(err) == simcloud.CodeConflict {
		// The instance is being deleted, or another change of its power state has not taken effect yet.
		after, err = client.currentInstance(ctx, in.ID)
	}
	switch {
	case err != nil:
		return nil, translate(err, "change the power state of instance "+in.ProviderID)
	case after == nil, after.State == simcloud.StateTerminated:
		return nil, provider.Errorf(provider.NotFound, "instance %s is terminated", in.ProviderID)
	}
	return convert(after, endpoint), nil
}
