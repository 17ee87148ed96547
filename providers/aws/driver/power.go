package driver

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"machinist.dev/machinist/pkg/provider"
)

// SetPower implements provider.Power. The answers to StopInstances and StartInstances contain the state after the
// call, and both calls change nothing if the instance already has the state. So SetPower always sends the call, and
// never relies on a read. KeepCapacity has no effect: a stopped instance always releases its capacity, except on a
// Dedicated Host or in a capacity reservation.
func (d *Driver) SetPower(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	at, err := locate(req.ProviderID, req.Scope)
	if err != nil {
		return nil, err
	}
	c, err := d.clients(req.Class.Credentials, at.region)
	if err != nil {
		return nil, err
	}
	in, err := c.ownInstance(ctx, at.id, own)
	if err != nil {
		return nil, err
	}
	if stateName(in) == types.InstanceStateNameShuttingDown {
		return c.convert(in), nil
	}
	state, err := c.setPower(ctx, in, req.Action)
	if err != nil {
		return nil, err
	}
	in.State = &types.InstanceState{Name: state}
	if state == types.InstanceStateNameTerminated {
		return nil, provider.Errorf(provider.NotFound, "instance %s is terminated", at.id)
	}
	return c.convert(in), nil
}

// ownInstance reads an instance by its ID, and checks its owner.
func (c *clients) ownInstance(ctx context.Context, id string, own owner) (*types.Instance, error) {
	in, err := c.get(ctx, id)
	if err != nil {
		return nil, err
	}
	if isTerminated(in) {
		return nil, provider.Errorf(provider.NotFound, "instance %s is terminated", id)
	}
	return in, c.convert(in).OwnedBy(own.cluster, own.machine)
}

// setPower sends the call and returns the state of the instance.
func (c *clients) setPower(ctx context.Context, in *types.Instance, action provider.PowerAction) (
	types.InstanceStateName, error) {
	id := aws.ToString(in.InstanceId)
	switch action {
	case provider.PowerOn:
		return c.start(ctx, id)
	case provider.PowerOff, provider.PowerForceOff:
		if tagMap(in.Tags)[tagResize] != "" {
			// The instance must stay off after the change of its type.
			if err := c.untag(ctx, []string{id}, tagResize); err != nil {
				return "", err
			}
		}
		return c.stop(ctx, id, action == provider.PowerForceOff)
	}
	return "", provider.Errorf(provider.InvalidArgument, "the power action %.64q does not exist", action)
}

func (c *clients) start(ctx context.Context, id string) (types.InstanceStateName, error) {
	out, err := send(ctx, c, "start instance "+id, c.ec2.StartInstances,
		&ec2.StartInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		return "", err
	}
	return changedState(out.StartingInstances, id), nil
}

// stop stops an instance. With force, EC2 does not wait for the operating system.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StopInstances.html
func (c *clients) stop(ctx context.Context, id string, force bool) (types.InstanceStateName, error) {
	in := &ec2.StopInstancesInput{InstanceIds: []string{id}}
	if force {
		in.Force = aws.Bool(true)
	}
	out, err := send(ctx, c, "stop instance "+id, c.ec2.StopInstances, in)
	if err != nil {
		if codeOf(err) == "UnsupportedOperation" {
			return "", provider.Errorf(provider.Unimplemented,
				"EC2 cannot stop instance %s: it is a Spot instance, or its root "+
					"device is an instance store (UnsupportedOperation)", id)
		}
		return "", err
	}
	return changedState(out.StoppingInstances, id), nil
}
