package driver

import (
	"cmp"
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/httpapi"
)

// Get implements provider.Driver.
func (d *Driver) Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
	if req.ProviderID == "" {
		return d.getByTags(ctx, req)
	}
	at, err := locate(req.ProviderID, req.Scope)
	if err != nil {
		return nil, err
	}
	c, err := d.clients(req.Class.Credentials, at.region)
	if err != nil {
		return nil, err
	}
	in, err := c.get(ctx, at.id)
	if err != nil {
		return nil, err
	}
	if isTerminated(in) {
		return nil, goneError(in, req.CreateHandle)
	}
	return c.convert(in), nil
}

// goneError returns the NotFound for a terminated instance. If the machine still waits for its creation, the error
// also contains why the launch failed.
func goneError(in *types.Instance, handle string) error {
	id := aws.ToString(in.InstanceId)
	e := provider.Errorf(provider.NotFound, "instance %s is terminated", id)
	if r, code, failed := launchFailure(in); failed {
		e = provider.Errorf(provider.NotFound, "instance %s was terminated before it ran: %s (%s)", id, r.text, code)
		if handle == id {
			e.CreateCode, e.Field = r.code, r.field
		}
	}
	return e
}

func (d *Driver) getByTags(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	region, err := regionOf(req.Class)
	if err != nil {
		return nil, err
	}
	c, err := d.clients(req.Class.Credentials, region)
	if err != nil {
		return nil, err
	}
	all, err := c.owned(ctx, own)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, provider.Errorf(provider.NotFound, "machine %s has no instance", own.machine.UID)
	}
	return c.convert(&all[0]), nil
}

// get reads one instance by its ID.
func (c *clients) get(ctx context.Context, id string) (*types.Instance, error) {
	out, err := send(ctx, c, "get instance "+id, c.ec2.DescribeInstances,
		&ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		return nil, err
	}
	for _, reservation := range out.Reservations {
		for i := range reservation.Instances {
			if aws.ToString(reservation.Instances[i].InstanceId) == id {
				return &reservation.Instances[i], nil
			}
		}
	}
	return nil, provider.Errorf(provider.NotFound, "instance %s does not exist", id)
}

// present are the states of instances that are not terminated.
func present() types.Filter {
	return filter("instance-state-name", "pending", "running", "stopping", "stopped", "shutting-down")
}

// owned finds the instances with the owner's tags that are not terminated. The first one is the oldest instance that
// is not being deleted.
func (c *clients) owned(ctx context.Context, own owner) (all []types.Instance, err error) {
	in := &ec2.DescribeInstancesInput{Filters: append(own.filters(), present())}
	pages := httpapi.List(ctx)
	for {
		out, err := send(pages, c, "find the instance of machine "+string(own.machine.UID), c.ec2.DescribeInstances, in)
		if err != nil {
			return nil, err
		}
		for _, reservation := range out.Reservations {
			for _, i := range reservation.Instances {
				same := func(other types.Instance) bool {
					return aws.ToString(other.InstanceId) == aws.ToString(i.InstanceId)
				}
				if own.owns(tagMap(i.Tags)) && !isTerminated(&i) && !slices.ContainsFunc(all, same) {
					all = append(all, i)
				}
			}
		}
		if aws.ToString(out.NextToken) == "" {
			break
		}
		in.NextToken = out.NextToken
	}
	slices.SortStableFunc(all, func(a, b types.Instance) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), aws.ToTime(a.LaunchTime).Compare(aws.ToTime(b.LaunchTime)),
			cmp.Compare(aws.ToString(a.InstanceId), aws.ToString(b.InstanceId)))
	})
	return all, nil
}

func rank(in *types.Instance) int {
	if stateName(in) == types.InstanceStateNameShuttingDown {
		return 1
	}
	return 0
}

// List implements provider.Driver. The last page also contains the volumes and network interfaces without an
// instance.
func (d *Driver) List(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
	if req.ClusterID == "" {
		return provider.ListPage{}, provider.Errorf(provider.InvalidArgument, "the cluster ID is empty")
	}
	region, err := regionOf(req.Class)
	if err != nil {
		return provider.ListPage{}, err
	}
	c, err := d.clients(req.Class.Credentials, region)
	if err != nil {
		return provider.ListPage{}, err
	}
	in := &ec2.DescribeInstancesInput{Filters: []types.Filter{tagFilter(provider.TagCluster, req.ClusterID), present()},
		MaxResults: aws.Int32(d.options.PageSize)}
	if req.Continue != "" {
		in.NextToken = aws.String(req.Continue)
	}
	out, err := send(httpapi.List(ctx), c, "list the instances of the cluster", c.ec2.DescribeInstances, in)
	if err != nil {
		return provider.ListPage{}, err
	}
	page := provider.ListPage{Continue: aws.ToString(out.NextToken)}
	seen := map[string]bool{}
	for _, reservation := range out.Reservations {
		for i := range reservation.Instances {
			found := c.convert(&reservation.Instances[i])
			if found.ClusterID != req.ClusterID || isTerminated(&reservation.Instances[i]) || seen[found.ProviderID] {
				continue
			}
			seen[found.ProviderID] = true
			page.Instances = append(page.Instances, *found)
		}
	}
	if page.Continue != "" {
		return page, nil
	}
	page.Leftovers, err = c.leftovers(ctx, req.ClusterID)
	return page, err
}
