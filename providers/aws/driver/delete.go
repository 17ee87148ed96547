package driver

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"machinist.dev/machinist/pkg/provider"
)

// Delete implements provider.Driver. EC2 deletes the volumes and network interfaces with the instance, unless a user
// has changed DeleteOnTermination. When the instance is terminated, Delete deletes the remaining parts with its
// tags.
func (d *Driver) Delete(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	var at location
	if req.ProviderID != "" {
		at, err = locate(req.ProviderID, req.Scope)
	} else {
		at.region, err = regionOf(req.Class)
	}
	if err != nil {
		return provider.DeleteResult{}, err
	}
	c, err := d.clients(req.Class.Credentials, at.region)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	found, left, err := c.deleteInstances(ctx, at.id, own)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	if len(left) == 0 {
		if left, err = c.deleteParts(ctx, own, at.id); err != nil {
			return provider.DeleteResult{}, err
		}
	}
	return provider.DeleteResult{Gone: len(left) == 0, Found: found, Remaining: strings.Join(left, "; ")}, nil
}

// deleteInstances terminates the instance with an ID, or all instances of the owner if the ID is empty. It returns
// what is not terminated yet.
func (c *clients) deleteInstances(ctx context.Context, id string, own owner) (found bool, left []string, err error) {
	var all []types.Instance
	if id == "" {
		if all, err = c.owned(ctx, own); err != nil {
			return false, nil, err
		}
	} else {
		in, err := c.get(ctx, id)
		switch {
		case err == nil && isTerminated(in):
			return false, nil, nil
		case err == nil:
			all = []types.Instance{*in}
		case provider.IsNotFound(err):
			// A read by ID may not show a new instance yet, although a search by tags does. Other instances of the owner
			// stay.
			if all, err = c.owned(ctx, own); err != nil {
				return false, nil, err
			}
			all = slices.DeleteFunc(all, func(in types.Instance) bool { return aws.ToString(in.InstanceId) != id })
		default:
			return false, nil, err
		}
	}
	for i := range all {
		state, err := c.terminate(ctx, &all[i], own)
		switch {
		case provider.IsNotFound(err):
		case err == nil && state == types.InstanceStateNameTerminated:
			found = true // The answer is up to date, unlike the read: the instance is gone.
		case err != nil:
			return false, nil, err
		default:
			found = true
			left = append(left, "instance "+aws.ToString(all[i].InstanceId)+" ("+string(state)+")")
		}
	}
	return found, left, nil
}

// terminate starts the termination of the owner's instance, and returns its state.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TerminateInstances.html
func (c *clients) terminate(ctx context.Context, in *types.Instance, own owner) (types.InstanceStateName, error) {
	if err := c.convert(in).OwnedBy(own.cluster, own.machine); err != nil {
		return "", err
	}
	id := aws.ToString(in.InstanceId)
	out, err := send(ctx, c, "terminate instance "+id, c.ec2.TerminateInstances,
		&ec2.TerminateInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		return "", err
	}
	return changedState(out.TerminatingInstances, id), nil
}

// changedState returns the state of an instance in the answer to a change. Unlike a read, the answer is up to date.
func changedState(all []types.InstanceStateChange, id string) types.InstanceStateName {
	for _, change := range all {
		if aws.ToString(change.InstanceId) == id && change.CurrentState != nil {
			return change.CurrentState.Name
		}
	}
	return ""
}
