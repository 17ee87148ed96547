package driver

import (
	"context"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// Delete implements provider.Driver.
func (d *Driver) Delete(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	client, err := d.client(d.endpointOf(req.Scope, req.Class.Spec), req.Class.Credentials)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	if req.ProviderID != "" {
		gone, err := deleteByProviderID(ctx, client, req.ProviderID, own)
		return provider.DeleteResult{Gone: gone}, err
	}
	found, err := byTags(ctx, client, own)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	result := provider.DeleteResult{Gone: true}
	for i := range found {
		gone, err := terminate(ctx, client, &found[i])
		if err != nil {
			return provider.DeleteResult{}, err
		}
		result.Gone = result.Gone && gone
	}
	return result, nil
}

func deleteByProviderID(ctx context.Context, client *simcloud.Client, providerID string, own owner) (gone bool, err error) {
	id, err := idOf(providerID)
	if err != nil {
		return false, err
	}
	in, err := client.GetInstance(ctx, id)
	if simcloud.CodeOf(err) == simcloud.CodeNotFound {
		in, err = current(ctx, client, id)
	}
	switch {
	case simcloud.CodeOf(err) == simcloud.CodeNotFound:
		return true, nil
	case err != nil:
		return false, translate(err, "get instance "+providerID)
	case in == nil, in.State == simcloud.StateTerminated:
		return true, nil
	case in.ProviderID != providerID:
		return false, provider.Errorf(provider.FailedPrecondition, "delete instance %s: instance %s is at %s", providerID, id, in.ProviderID)
	}
	if err := own.owns(in); err != nil {
		return false, err
	}
	return terminate(ctx, client, in)
}

// current reads an instance that GetInstance does not show. Reads of this cloud may lag behind its writes, and an instance
// that was made a moment ago must not pass for one that is gone; the answer to a write, even to one that changes nothing,
// never lags. It returns nil for an instance that is terminated.
func current(ctx context.Context, client *simcloud.Client, id string) (*simcloud.Instance, error) {
	in, err := client.UpdateTags(ctx, id, simcloud.UpdateTagsRequest{})
	if simcloud.CodeOf(err) == simcloud.CodeConflict {
		return nil, nil
	}
	return in, err
}

// terminate asks for the end of an instance that is ours, unless that was done, and reports whether it is reached.
func terminate(ctx context.Context, client *simcloud.Client, in *simcloud.Instance) (gone bool, err error) {
	if in.State == simcloud.StateShuttingDown {
		return false, nil
	}
	after, err := client.DeleteInstance(ctx, in.ID)
	if simcloud.CodeOf(err) == simcloud.CodeNotFound {
		return true, nil
	}
	if err != nil {
		return false, translate(err, "delete instance "+in.ProviderID)
	}
	return after.State == simcloud.StateTerminated, nil
}
