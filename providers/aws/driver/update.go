package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/aws/machine"
)

// Update implements provider.Driver. Tags, security groups, the source/destination check, metadata options, the
// instance profile and the volumes change while the instance runs. The instance type changes while the instance is
// stopped, if the specification allows this. All other changes require a replacement.
//
// Every call compares the instance with the specification and starts the next change. The tag "machinist-resize"
// records a change of the type, so that the next call continues an interrupted change.
func (d *Driver) Update(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	at, err := locate(req.ProviderID, req.Scope)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	c, err := d.clients(req.Class.Credentials, at.region)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	in, err := c.ownInstance(ctx, at.id, own)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	if stateName(in) == types.InstanceStateNameShuttingDown {
		return provider.UpdateResult{}, provider.Errorf(provider.Aborted, "update instance %s: it is being deleted", at.id)
	}
	u := &update{clients: c, spec: spec, req: req, own: own, id: at.id, in: in, tags: tagMap(in.Tags)}
	outcome, reason, err := u.step(ctx)
	if err != nil {
		return provider.UpdateResult{}, updateError(err)
	}
	return provider.UpdateResult{Outcome: outcome, Reason: reason, Instance: c.convert(in)}, nil
}

// updateError converts a NotFound about another resource than the instance, and the error of an instance that cannot
// be stopped.
func updateError(err error) error {
	if e, ok := errors.AsType[*provider.Error](err); ok && e.Code == provider.Unimplemented {
		return missing("resize", "%s", e.Message)
	}
	if codeOf(err) != "InvalidInstanceID.NotFound" {
		return createError(err)
	}
	return err
}

type update struct {
	*clients
	spec machine.Spec
	req  provider.UpdateRequest
	own  owner
	id   string
	in   *types.Instance
	tags map[string]string
}

func (u *update) step(ctx context.Context) (provider.UpdateOutcome, string, error) {
	if reason := u.replacementReason(); reason != "" {
		return provider.UpdateNeedsReplacement, reason, nil
	}
	outcome, reason, err := u.changeType(ctx)
	if outcome != "" || err != nil {
		return outcome, reason, err
	}
	for _, change := range []func(context.Context) (bool, error){
		u.changeInterface, u.changeMetadata, u.changeProfile,
	} {
		changed, err := change(ctx)
		if err != nil {
			return "", "", err
		}
		if changed {
			return provider.UpdateInProgress, "", nil
		}
	}
	outcome, reason, err = u.changeVolumes(ctx)
	if outcome != "" || err != nil {
		return outcome, reason, err
	}
	changed, err := u.changeTags(ctx)
	if changed || err != nil {
		return provider.UpdateInProgress, "", err
	}
	return provider.UpdateDone, "", nil
}

// replacementReason returns why the machine must be replaced, or an empty string if an update in place is possible.
func (u *update) replacementReason() string {
	switch old := u.tags[tagSpec]; {
	case u.spec.Region != u.region:
		return "an instance cannot move to another region"
	case old != "" && old != specHash(u.spec):
		return "of the providerSpec, only tags, securityGroups, sourceDestCheck, metadataOptions, iamInstanceProfile, the " +
			"sizes and speeds of volumes and, if resize allows it, instanceType can change in place"
	case u.req.Version != "" && u.tags[tagVersion] != "" && u.tags[tagVersion] != u.req.Version:
		return fmt.Sprintf("the kubelet was installed as version %.64s, and %.64s is wanted", u.tags[tagVersion],
			u.req.Version)
	}
	return ""
}

// changeType stops the instance, changes its type, and starts it again. An empty outcome means that nothing is to
// do.
func (u *update) changeType(ctx context.Context) (provider.UpdateOutcome, string, error) {
	state, mark := stateName(u.in), u.tags[tagResize]
	differs := string(u.in.InstanceType) != u.spec.InstanceType
	switch {
	case !differs && mark == "":
		return "", "", nil
	case !differs && state == types.InstanceStateNameStopped:
		_, err := u.start(ctx, u.id)
		return provider.UpdateInProgress, "", err
	case !differs && state == types.InstanceStateNameRunning:
		return provider.UpdateInProgress, "", u.untag(ctx, []string{u.id}, tagResize)
	case !differs:
		return provider.UpdateInProgress, "", nil
	case u.spec.Resize != machine.ResizeStopAndStart && mark == "":
		return provider.UpdateNeedsReplacement, fmt.Sprintf("the instance type changes from %s to %s, and resize is %s",
			u.in.InstanceType, u.spec.InstanceType, u.spec.Resize), nil
	case state == types.InstanceStateNameStopped:
		_, err := send(ctx, u.clients, "change the type of instance "+u.id, u.ec2.ModifyInstanceAttribute,
			&ec2.ModifyInstanceAttributeInput{InstanceId: aws.String(u.id),
				InstanceType: &types.AttributeValue{Value: aws.String(u.spec.InstanceType)}})
		return provider.UpdateInProgress, "", err
	case mark == "" && !u.req.NodeDrained:
		return provider.UpdateNeedsDrain, "the instance must be stopped to change its type", nil
	case mark == "":
		return provider.UpdateInProgress, "", u.tag(ctx, []string{u.id}, map[string]string{tagResize: resizeStarts})
	case state == types.InstanceStateNameRunning:
		_, err := u.stop(ctx, u.id, false)
		return provider.UpdateInProgress, "", err
	}
	return provider.UpdateInProgress, "", nil
}

// primary returns the primary network interface.
func (u *update) primary() *types.InstanceNetworkInterface {
	for i, n := range u.in.NetworkInterfaces {
		if n.Attachment != nil && aws.ToInt32(n.Attachment.DeviceIndex) == 0 {
			return &u.in.NetworkInterfaces[i]
		}
	}
	return nil
}

// changeInterface changes the security groups and the source/destination check of the primary interface. Interfaces
// of network plugins keep theirs.
func (u *update) changeInterface(ctx context.Context) (bool, error) {
	n := u.primary()
	if n == nil {
		return false, nil
	}
	want, err := u.groups(ctx, "securityGroups", u.spec.SecurityGroups, aws.ToString(n.VpcId))
	if err != nil {
		return false, err
	}
	var have []string
	for _, g := range n.Groups {
		have = append(have, aws.ToString(g.GroupId))
	}
	slices.Sort(have)
	slices.Sort(want)
	attempted := "change the network interface of instance " + u.id
	if !slices.Equal(have, want) {
		_, err := send(ctx, u.clients, attempted, u.ec2.ModifyNetworkInterfaceAttribute,
			&ec2.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceId: n.NetworkInterfaceId, Groups: want})
		return true, err
	}
	if check := aws.ToBool(u.spec.SourceDestCheck); aws.ToBool(n.SourceDestCheck) != check {
		_, err := send(ctx, u.clients, attempted, u.ec2.ModifyNetworkInterfaceAttribute,
			&ec2.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceId: n.NetworkInterfaceId,
				SourceDestCheck: &types.AttributeBooleanValue{Value: aws.Bool(check)}})
		return true, err
	}
	return false, nil
}

func (u *update) changeMetadata(ctx context.Context) (bool, error) {
	want, have := u.spec.MetadataOptions, u.in.MetadataOptions
	if have == nil || string(have.HttpTokens) == want.HTTPTokens && string(have.HttpEndpoint) == want.HTTPEndpoint &&
		aws.ToInt32(have.HttpPutResponseHopLimit) == want.HTTPPutResponseHopLimit &&
		(have.InstanceMetadataTags == "" || string(have.InstanceMetadataTags) == want.InstanceMetadataTags) {
		return false, nil
	}
	_, err := send(ctx, u.clients, "change the metadata options of instance "+u.id, u.ec2.ModifyInstanceMetadataOptions,
		&ec2.ModifyInstanceMetadataOptionsInput{InstanceId: aws.String(u.id),
			HttpTokens:              types.HttpTokensState(want.HTTPTokens),
			HttpEndpoint:            types.InstanceMetadataEndpointState(want.HTTPEndpoint),
			HttpPutResponseHopLimit: aws.Int32(want.HTTPPutResponseHopLimit),
			InstanceMetadataTags:    types.InstanceMetadataTagsState(want.InstanceMetadataTags)})
	return true, err
}

// changeProfile associates another instance profile.
func (u *update) changeProfile(ctx context.Context) (bool, error) {
	have, want := "", u.spec.IAMInstanceProfile
	if u.in.IamInstanceProfile != nil {
		have = aws.ToString(u.in.IamInstanceProfile.Arn)
	}
	if have == want || want != "" && strings.HasSuffix(have, "/"+want) {
		return false, nil
	}
	if have == "" {
		_, err := send(ctx, u.clients, "set the instance profile of instance "+u.id, u.ec2.AssociateIamInstanceProfile,
			&ec2.AssociateIamInstanceProfileInput{InstanceId: aws.String(u.id), IamInstanceProfile: profileOf(want)})
		return true, err
	}
	found, err := send(ctx, u.clients, "find the instance profile of instance "+u.id,
		u.ec2.DescribeIamInstanceProfileAssociations,
		&ec2.DescribeIamInstanceProfileAssociationsInput{Filters: []types.Filter{filter("instance-id", u.id)}})
	if err != nil {
		return false, err
	}
	for _, a := range found.IamInstanceProfileAssociations {
		if aws.ToString(a.InstanceId) != u.id || a.State == types.IamInstanceProfileAssociationStateDisassociating {
			continue
		}
		if want == "" {
			_, err = send(ctx, u.clients, "remove the instance profile of instance "+u.id,
				u.ec2.DisassociateIamInstanceProfile,
				&ec2.DisassociateIamInstanceProfileInput{AssociationId: a.AssociationId})
		} else {
			_, err = send(ctx, u.clients, "change the instance profile of instance "+u.id,
				u.ec2.ReplaceIamInstanceProfileAssociation,
				&ec2.ReplaceIamInstanceProfileAssociationInput{AssociationId: a.AssociationId,
					IamInstanceProfile: profileOf(want)})
		}
		return true, err
	}
	return true, nil // The association is changing.
}

// changeVolumes changes the sizes, types and speeds of the root volume and the data volumes. A file system grows
// only if the operating system does this. https://docs.aws.amazon.com/ebs/latest/userguide/ebs-modify-volume.html
func (u *update) changeVolumes(ctx context.Context) (provider.UpdateOutcome, string, error) {
	wanted := map[string]machine.Volume{}
	devices := map[string]machine.Volume{aws.ToString(u.in.RootDeviceName): u.spec.RootVolume}
	for _, v := range u.spec.DataVolumes {
		devices[v.DeviceName] = v.Volume
	}
	for _, m := range u.in.BlockDeviceMappings {
		if v, ours := devices[aws.ToString(m.DeviceName)]; ours && m.Ebs != nil {
			wanted[aws.ToString(m.Ebs.VolumeId)] = v
		}
	}
	if len(wanted) == 0 {
		return "", "", nil
	}
	found, err := send(ctx, u.clients, "get the volumes of instance "+u.id, u.ec2.DescribeVolumes,
		&ec2.DescribeVolumesInput{VolumeIds: slices.Sorted(maps.Keys(wanted))})
	if err != nil {
		return "", "", err
	}
	for _, have := range found.Volumes {
		id := aws.ToString(have.VolumeId)
		want, ours := wanted[id]
		if !ours {
			continue
		}
		if want.SizeGiB != 0 && want.SizeGiB < aws.ToInt32(have.Size) {
			return provider.UpdateNeedsReplacement, fmt.Sprintf("volume %s has %d GiB and cannot shrink to %d GiB", id,
				aws.ToInt32(have.Size), want.SizeGiB), nil
		}
		change, differs := modification(want, have)
		if !differs {
			continue
		}
		_, err := send(ctx, u.clients, "change volume "+id, u.ec2.ModifyVolume, change)
		return provider.UpdateInProgress, "", err
	}
	return "", "", nil
}

// modification returns the call that changes a volume, and whether it differs from the specification.
func modification(want machine.Volume, have types.Volume) (*ec2.ModifyVolumeInput, bool) {
	change := &ec2.ModifyVolumeInput{VolumeId: have.VolumeId}
	differs := false
	if want.SizeGiB > aws.ToInt32(have.Size) {
		change.Size, differs = aws.Int32(want.SizeGiB), true
	}
	if want.VolumeType != string(have.VolumeType) {
		change.VolumeType, differs = types.VolumeType(want.VolumeType), true
	}
	if want.IOPS != 0 && want.IOPS != aws.ToInt32(have.Iops) {
		change.Iops, differs = aws.Int32(want.IOPS), true
	}
	if want.Throughput != 0 && want.Throughput != aws.ToInt32(have.Throughput) {
		change.Throughput, differs = aws.Int32(want.Throughput), true
	}
	return change, differs
}

// changeTags sets the tags of the specification, and removes those of the last specification. Tags of other users
// stay.
func (u *update) changeTags(ctx context.Context) (bool, error) {
	wanted := specTags(&u.spec)
	var drop []string
	for key := range u.tags {
		_, keep := wanted[key]
		if !keep && (key == tagNames || hasHash(u.tags[tagNames], key)) {
			drop = append(drop, key)
		}
	}
	set := map[string]string{}
	for key, value := range wanted {
		if have, has := u.tags[key]; !has || have != value {
			set[key] = value
		}
	}
	if len(set) == 0 && len(drop) == 0 {
		return false, nil
	}
	slices.Sort(drop)
	// Change the tags of the instance last: they record that all parts have the wanted tags.
	parts, err := u.parts(ctx, u.own.filters(), u.own.owns)
	if err != nil {
		return false, err
	}
	var ids []string
	for _, p := range parts {
		ids = append(ids, p.id)
	}
	names := wanted[tagNames]
	delete(set, tagNames)
	drop = slices.DeleteFunc(drop, func(key string) bool { return key == tagNames })
	for _, targets := range [][]string{ids, {u.id}} {
		if len(targets) == 0 {
			continue
		}
		if len(drop) > 0 {
			if err := u.untag(ctx, targets, drop...); err != nil {
				return false, err
			}
		}
		if len(set) > 0 {
			if err := u.tag(ctx, targets, set); err != nil {
				return false, err
			}
		}
	}
	switch {
	case names == "" && u.tags[tagNames] != "":
		err = u.untag(ctx, []string{u.id}, tagNames)
	case names != u.tags[tagNames]:
		err = u.tag(ctx, []string{u.id}, map[string]string{tagNames: names})
	}
	return true, err
}

func (c *clients) tag(ctx context.Context, ids []string, tags map[string]string) error {
	_, err := send(ctx, c, "set tags of "+strings.Join(ids, ", "), c.ec2.CreateTags,
		&ec2.CreateTagsInput{Resources: ids, Tags: tagList(tags)})
	return err
}

// untag removes tags with any value.
func (c *clients) untag(ctx context.Context, ids []string, keys ...string) error {
	var tags []types.Tag
	for _, key := range keys {
		tags = append(tags, types.Tag{Key: aws.String(key)})
	}
	_, err := send(ctx, c, "remove tags of "+strings.Join(ids, ", "), c.ec2.DeleteTags,
		&ec2.DeleteTagsInput{Resources: ids, Tags: tags})
	return err
}
