package driver

import (
	"context"
	"fmt"
	"strings"

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
	var result provider.DeleteResult
	if req.ProviderID != "" {
		result, err = deleteByProviderID(ctx, client, req.ProviderID, own)
	} else {
		result, err = deleteByTags(ctx, client, own)
	}
	if err != nil {
		return provider.DeleteResult{Found: result.Found}, err
	}
	if !result.Gone {
		return result, nil
	}
	result.Remaining, err = deleteAddresses(ctx, client, req.ProviderID, own)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	result.Gone = result.Remaining == ""
	return result, nil
}

// deleteAddresses deletes the address that a deleted instance left behind, and returns what still exists. Lists may be
// outdated, so only the answers to deletions show whether an address exists.
func deleteAddresses(ctx context.Context, client account, providerID string, own owner) (left string, err error) {
	var ids []string
	if providerID != "" {
		id, err := idOf(providerID)
		if err != nil {
			return "", err
		}
		ids = []string{"a-" + strings.TrimPrefix(id, "i-")}
	} else {
		for address, err := range client.addresses(ctx, own.tags()) {
			if err != nil {
				return "", translate(err, "look for the address of machine "+string(own.machine.UID))
			}
			// The cloud may ignore the filter.
			if address.Tags[provider.TagCluster] == own.cluster &&
				address.Tags[provider.TagMachineUID] == string(own.machine.UID) {
				ids = append(ids, address.ID)
			}
		}
	}
	for _, id := range ids {
		err := client.DeleteAddress(ctx, id)
		switch simcloud.CodeOf(err) {
		case simcloud.CodeNotFound:
			err = nil
		case simcloud.CodeConflict:
			// The address belongs to an instance that the search missed.
			return fmt.Sprintf("address %s: %.256s", id, err), nil
		}
		if err != nil {
			return "", translate(err, "delete address "+id)
		}
	}
	return "", nil
}

func deleteByTags(ctx context.Context, client account, own owner) (provider.DeleteResult, error) {
	found, err := byTags(ctx, client, own)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	result := provider.DeleteResult{Gone: true, Found: len(found) > 0}
	for i := range found {
		gone, err := terminate(ctx, client, &found[i])
		if err != nil {
			return provider.DeleteResult{}, err
		}
		if !gone {
			result.Gone, result.Remaining = false, leftInstance(&found[i])
		}
	}
	return result, nil
}

func deleteByProviderID(ctx context.Context, client account, providerID string,
	own owner) (provider.DeleteResult, error) {
	gone := provider.DeleteResult{Gone: true}
	id, err := idOf(providerID)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	in, err := client.GetInstance(ctx, id)
	if simcloud.CodeOf(err) == simcloud.CodeNotFound {
		// Reads may lag: a new instance may look gone.
		in, err = client.currentInstance(ctx, id)
	}
	switch {
	case simcloud.CodeOf(err) == simcloud.CodeNotFound:
		return gone, nil
	case err != nil:
		return provider.DeleteResult{}, translate(err, "get instance "+providerID)
	case in == nil, in.State == simcloud.StateTerminated:
		return gone, nil
	case in.ProviderID != providerID:
		return provider.DeleteResult{}, provider.Errorf(provider.FailedPrecondition,
			"delete instance %s: the provider ID of instance %s is %s", providerID, id, in.ProviderID)
	}
	in, err = client.ownedInstance(ctx, in, own)
	switch {
	case provider.IsNotFound(err):
		return gone, nil
	case err != nil:
		return provider.DeleteResult{}, err
	}
	done, err := terminate(ctx, client, in)
	result := provider.DeleteResult{Gone: done, Found: true}
	if !done {
		result.Remaining = leftInstance(in)
	}
	return result, err
}

func leftInstance(in *simcloud.Instance) string { return "instance " + in.ProviderID }

// terminate requests the deletion of an instance unless it was already requested. It reports whether the instance is
// terminated.
func terminate(ctx context.Context, client account, in *simcloud.Instance) (gone bool, err error) {
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
