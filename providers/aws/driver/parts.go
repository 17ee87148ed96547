package driver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/httpapi"
)

// part is a volume or a network interface with the tags of Machinist. Volumes of pods and interfaces of network
// plugins do not have these tags.
type part struct {
	id       string
	isVolume bool
	tags     map[string]string
	created  time.Time
	state    string
	// instance is the ID of the instance, or empty.
	instance string
}

// available reports whether the part belongs to no instance.
func (p part) available() bool { return p.state == "available" }

// parts finds all volumes and network interfaces with some tags.
func (c *clients) parts(ctx context.Context, filters []types.Filter, owned func(map[string]string) bool) (all []part,
	err error) {
	add := func(p part) {
		if owned(p.tags) && !slices.ContainsFunc(all, func(other part) bool { return other.id == p.id }) {
			all = append(all, p)
		}
	}
	volumes := &ec2.DescribeVolumesInput{Filters: filters, MaxResults: aws.Int32(500)}
	pages := httpapi.List(ctx)
	for {
		out, err := send(pages, c, "list volumes by tags", c.ec2.DescribeVolumes, volumes)
		if err != nil {
			return nil, err
		}
		for _, v := range out.Volumes {
			p := part{id: aws.ToString(v.VolumeId), isVolume: true, tags: tagMap(v.Tags), created: aws.ToTime(v.CreateTime),
				state: string(v.State)}
			for _, a := range v.Attachments {
				p.instance = aws.ToString(a.InstanceId)
			}
			add(p)
		}
		if aws.ToString(out.NextToken) == "" {
			break
		}
		volumes.NextToken = out.NextToken
	}
	interfaces := &ec2.DescribeNetworkInterfacesInput{Filters: filters, MaxResults: aws.Int32(500)}
	pages = httpapi.List(ctx)
	for {
		out, err := send(pages, c, "list network interfaces by tags", c.ec2.DescribeNetworkInterfaces, interfaces)
		if err != nil {
			return nil, err
		}
		for _, n := range out.NetworkInterfaces {
			p := part{id: aws.ToString(n.NetworkInterfaceId), tags: tagMap(n.TagSet), state: string(n.Status)}
			if n.Attachment != nil {
				p.instance = aws.ToString(n.Attachment.InstanceId)
			}
			add(p)
		}
		if aws.ToString(out.NextToken) == "" {
			return all, nil
		}
		interfaces.NextToken = out.NextToken
	}
}

// leftovers returns the parts of a cluster that belong to no instance.
func (c *clients) leftovers(ctx context.Context, cluster string) (all []provider.Leftover, err error) {
	parts, err := c.parts(ctx, []types.Filter{tagFilter(provider.TagCluster, cluster), filter("status", "available")},
		func(tags map[string]string) bool { return tags[provider.TagCluster] == cluster && uid(tags) != "" })
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		if p.available() {
			all = append(all, provider.Leftover{ID: p.id, LaunchTime: p.created, ClusterID: cluster, MachineUID: uid(p.tags),
				MachineKey: p.tags[provider.TagMachine]})
		}
	}
	return all, nil
}

// deleteParts deletes the parts of an owner without an instance. It returns what still exists. If only one instance
// of the owner is deleted, the parts of its other instances stay.
func (c *clients) deleteParts(ctx context.Context, own owner, only string) (left []string, err error) {
	all, err := c.parts(ctx, own.filters(), own.owns)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if only != "" && p.instance != "" && p.instance != only {
			continue
		}
		gone, text, err := c.deletePart(ctx, p)
		if err != nil {
			return nil, err
		}
		if !gone {
			left = append(left, text)
		}
	}
	return left, nil
}

// deletePart deletes one part. The text describes a part that still exists.
func (c *clients) deletePart(ctx context.Context, p part) (gone bool, text string, err error) {
	name := "network interface " + p.id
	if p.isVolume {
		name = "volume " + p.id
	}
	if p.state == "deleting" || p.state == "deleted" {
		return p.state == "deleted", name + " (deleting)", nil
	}
	// The state may be outdated, so a part that is shown as in use is deleted too. EC2 refuses this if it is true.
	if p.isVolume {
		_, err = send(ctx, c, "delete "+name, c.ec2.DeleteVolume, &ec2.DeleteVolumeInput{VolumeId: aws.String(p.id)})
	} else {
		_, err = send(ctx, c, "delete "+name, c.ec2.DeleteNetworkInterface,
			&ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: aws.String(p.id)})
	}
	switch code := codeOf(err); {
	case err == nil, code == "InvalidVolume.NotFound", code == "InvalidNetworkInterfaceID.NotFound":
		return true, "", nil
	case code == "VolumeInUse", code == "InvalidNetworkInterface.InUse", !p.isVolume && code == "InvalidParameterValue":
		return false, fmt.Sprintf("%s (in use: %s)", name, safeCode(code)), nil
	}
	return false, "", err
}
