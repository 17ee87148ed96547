package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/aws/machine"
)

// Create implements provider.Driver. Create sends one RunInstances call with the client token of the attempt. EC2
// answers a repeated call with the same instance, even if reads do not show the instance yet.
func (d *Driver) Create(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	data, err := encodeUserData(req.UserData.Reveal(), spec.CompressUserData)
	if err != nil {
		return nil, err
	}
	c, err := d.clients(req.Class.Credentials, spec.Region)
	if err != nil {
		return nil, err
	}
	token := clientToken(own.cluster, req.Token)
	// EC2 forgets a client token after some time, but the tags last.
	if found, err := c.existing(ctx, own, token); found != nil || err != nil {
		return found, err
	}
	o := &order{spec: spec, token: token, name: own.machine.Name, userData: data,
		tags: own.identityTags(req.Tags), version: req.Version}
	if err := c.resolve(ctx, o); err != nil {
		return nil, err
	}
	in, err := c.run(ctx, o)
	if err != nil {
		return nil, err
	}
	switch stateName(in) {
	case types.InstanceStateNameShuttingDown, types.InstanceStateNameTerminated:
		text := "is being deleted"
		if r, code, failed := launchFailure(in); failed {
			text = "was terminated before it ran: " + r.text + " (" + code + ")"
		}
		return nil, provider.Errorf(provider.AlreadyExists, "create instance: instance %s of an earlier call %s",
			aws.ToString(in.InstanceId), text)
	}
	out := c.convert(in)
	if err := out.OwnedBy(own.cluster, own.machine); err != nil {
		return nil, err // The token belongs to this owner, so another user has changed the tags.
	}
	return out, nil
}

// existing returns the owner's instance, or nil if there is none. A search can show an instance that is already
// gone. If the instance belongs to this attempt, this does no harm. Otherwise, an earlier call of this attempt may
// have created another instance, so existing also reads the instance by its ID. An instance that failed before it
// ran is only ever shown as pending.
func (c *clients) existing(ctx context.Context, own owner, token string) (*provider.Instance, error) {
	all, err := c.owned(ctx, own)
	if err != nil {
		return nil, err
	}
	isGoing := func(in *types.Instance) bool {
		return isTerminated(in) || stateName(in) == types.InstanceStateNameShuttingDown
	}
	for i := range all {
		in := &all[i]
		if isGoing(in) {
			continue
		}
		if aws.ToString(in.ClientToken) == token {
			return c.convert(in), nil
		}
		in, err := c.get(ctx, aws.ToString(in.InstanceId))
		switch {
		case provider.IsNotFound(err) || err == nil && isGoing(in):
			continue
		case err != nil:
			return nil, err
		case stateName(in) == types.InstanceStateNamePending:
			return nil, provider.Errorf(provider.Aborted,
				"create instance: instance %s of an earlier attempt is still pending",
				aws.ToString(in.InstanceId))
		}
		return c.convert(in), nil
	}
	return nil, nil
}

// run sends the RunInstances call.
func (c *clients) run(ctx context.Context, o *order) (*types.Instance, error) {
	out, err := send(ctx, c, "create instance of type "+o.spec.InstanceType, c.ec2.RunInstances, o.request())
	if err != nil {
		return nil, createError(err)
	}
	if len(out.Instances) != 1 {
		// EC2 has accepted the request, so the code must not imply that no instance was created.
		return nil, provider.Errorf(provider.Internal, "create instance of type %s: EC2 returned %d instances",
			o.spec.InstanceType, len(out.Instances))
	}
	return &out.Instances[0], nil
}

// createError converts a NotFound about a resource in the request. NotFound would mean that the instance does not
// exist.
func createError(err error) error {
	if e, ok := errors.AsType[*provider.Error](err); ok && e.Code == provider.NotFound {
		out := *e
		out.Code = provider.FailedPrecondition
		return &out
	}
	return err
}

// order is a RunInstances call before its encoding.
type order struct {
	spec     machine.Spec
	token    string
	name     string
	userData string
	// tags are the tags of Machinist.
	tags    map[string]string
	version string
	// rootDevice, subnets and groups are resolved references. The first entries are those of the primary interface.
	rootDevice string
	subnets    []string
	groups     [][]string
}

// request returns the call. https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html
func (o *order) request() *ec2.RunInstancesInput {
	s := &o.spec
	in := &ec2.RunInstancesInput{
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1), ClientToken: aws.String(o.token), ImageId: aws.String(s.ImageID),
		InstanceType: types.InstanceType(s.InstanceType), NetworkInterfaces: o.interfaces(),
		BlockDeviceMappings: o.volumes(),
		MetadataOptions: &types.InstanceMetadataOptionsRequest{
			HttpTokens:              types.HttpTokensState(s.MetadataOptions.HTTPTokens),
			HttpPutResponseHopLimit: aws.Int32(s.MetadataOptions.HTTPPutResponseHopLimit),
			HttpEndpoint:            types.InstanceMetadataEndpointState(s.MetadataOptions.HTTPEndpoint),
			InstanceMetadataTags:    types.InstanceMetadataTagsState(s.MetadataOptions.InstanceMetadataTags),
		},
		PrivateDnsNameOptions: &types.PrivateDnsNameOptionsRequest{HostnameType: types.HostnameType(s.HostnameType)},
		IamInstanceProfile:    profileOf(s.IAMInstanceProfile),
		TagSpecifications:     o.tagSpecifications(),
	}
	if o.userData != "" {
		in.UserData = aws.String(o.userData)
	}
	if s.KeyName != "" {
		in.KeyName = aws.String(s.KeyName)
	}
	if p := s.Placement; p != (machine.Placement{Tenancy: "default"}) {
		in.Placement = &types.Placement{Tenancy: types.Tenancy(p.Tenancy), HostId: orNil(p.HostID),
			GroupName: orNil(p.GroupName), PartitionNumber: orNil(p.PartitionNumber)}
	}
	if r := s.CapacityReservation; r != (machine.CapacityReservation{}) {
		in.CapacityReservationSpecification = &types.CapacityReservationSpecification{
			CapacityReservationPreference: types.CapacityReservationPreference(r.Preference)}
		if r.Preference == "" {
			in.CapacityReservationSpecification.CapacityReservationTarget = &types.CapacityReservationTarget{
				CapacityReservationId: orNil(r.ID), CapacityReservationResourceGroupArn: orNil(r.ResourceGroupARN)}
		}
	}
	if s.CPUOptions != nil {
		in.CpuOptions = &types.CpuOptionsRequest{CoreCount: aws.Int32(s.CPUOptions.CoreCount),
			ThreadsPerCore: aws.Int32(s.CPUOptions.ThreadsPerCore)}
	}
	if s.Spot != nil {
		in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot,
			SpotOptions: &types.SpotMarketOptions{MaxPrice: orNil(s.Spot.MaxPrice),
				SpotInstanceType:             types.SpotInstanceTypeOneTime,
				InstanceInterruptionBehavior: types.InstanceInterruptionBehaviorTerminate}}
	}
	return in
}

func orNil[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

func profileOf(text string) *types.IamInstanceProfileSpecification {
	switch {
	case text == "":
		return nil
	case strings.HasPrefix(text, "arn:"):
		return &types.IamInstanceProfileSpecification{Arn: aws.String(text)}
	}
	return &types.IamInstanceProfileSpecification{Name: aws.String(text)}
}

// interfaces returns the network interfaces. EC2 deletes them with the instance.
func (o *order) interfaces() (all []types.InstanceNetworkInterfaceSpecification) {
	for i := range o.subnets {
		n := types.InstanceNetworkInterfaceSpecification{DeviceIndex: aws.Int32(int32(i)),
			SubnetId: aws.String(o.subnets[i]), Groups: o.groups[i], DeleteOnTermination: aws.Bool(true)}
		if i == 0 {
			n.AssociatePublicIpAddress = o.spec.AssociatePublicIPAddress
			n.Ipv6AddressCount, n.Ipv4PrefixCount, n.Ipv6PrefixCount = orNil(o.spec.IPv6AddressCount),
				orNil(o.spec.IPv4PrefixCount), orNil(o.spec.IPv6PrefixCount)
		}
		all = append(all, n)
	}
	return all
}

// volumes returns the root volume and the data volumes. EC2 deletes them with the instance.
func (o *order) volumes() []types.BlockDeviceMapping {
	all := []types.BlockDeviceMapping{blockDevice(o.rootDevice, o.spec.RootVolume)}
	for _, v := range o.spec.DataVolumes {
		all = append(all, blockDevice(v.DeviceName, v.Volume))
	}
	return all
}

func blockDevice(device string, v machine.Volume) types.BlockDeviceMapping {
	return types.BlockDeviceMapping{DeviceName: aws.String(device), Ebs: &types.EbsBlockDevice{
		VolumeSize: orNil(v.SizeGiB), VolumeType: types.VolumeType(v.VolumeType), Iops: orNil(v.IOPS),
		Throughput: orNil(v.Throughput), Encrypted: v.Encrypted, KmsKeyId: orNil(v.KMSKeyID),
		DeleteOnTermination: aws.Bool(true),
	}}
}

// tagSpecifications returns the tags of the instance, and those of its volumes and network interfaces.
func (o *order) tagSpecifications() []types.TagSpecification {
	all := map[string]string{}
	maps.Copy(all, o.spec.Tags)
	maps.Copy(all, o.tags)
	if all[tagName] == "" {
		all[tagName] = o.name
	}
	out := []types.TagSpecification{
		{ResourceType: types.ResourceTypeVolume, Tags: tagList(all)},
		{ResourceType: types.ResourceTypeNetworkInterface, Tags: tagList(all)},
	}
	maps.Copy(all, specTags(&o.spec))
	all[tagSpec] = specHash(o.spec)
	if o.version != "" {
		all[tagVersion] = o.version
	}
	return append([]types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: tagList(all)}}, out...)
}

// resolve finds the subnets and security groups of references by tags, and the root device of the image.
func (c *clients) resolve(ctx context.Context, o *order) error {
	image, err := c.image(ctx, o.spec.ImageID)
	if err != nil {
		return err
	}
	o.rootDevice = aws.ToString(image.RootDeviceName)
	for i, v := range o.spec.DataVolumes {
		if v.DeviceName == o.rootDevice {
			return provider.InvalidField(fmt.Sprintf("dataVolumes[%d].deviceName", i),
				"%s is the root device of the image %s", v.DeviceName, o.spec.ImageID)
		}
	}
	id, vpc, err := c.subnet(ctx, "subnet", o.spec.Subnet)
	if err != nil {
		return err
	}
	groups, err := c.groups(ctx, "securityGroups", o.spec.SecurityGroups, vpc)
	if err != nil {
		return err
	}
	o.subnets, o.groups = []string{id}, [][]string{groups}
	for i, n := range o.spec.NetworkInterfaces {
		at := fmt.Sprintf("networkInterfaces[%d].", i)
		id, vpc, err := c.subnet(ctx, at+"subnet", n.Subnet)
		if err != nil {
			return err
		}
		own := groups
		if len(n.SecurityGroups) > 0 {
			if own, err = c.groups(ctx, at+"securityGroups", n.SecurityGroups, vpc); err != nil {
				return err
			}
		}
		o.subnets, o.groups = append(o.subnets, id), append(o.groups, own)
	}
	return nil
}
