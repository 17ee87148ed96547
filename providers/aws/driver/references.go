package driver

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/aws/machine"
)

// image returns an AMI. The properties that the driver reads never change, so they are cached.
func (c *clients) image(ctx context.Context, id string) (types.Image, error) {
	c.facts.mu.Lock()
	known, found := c.facts.images[id]
	c.facts.mu.Unlock()
	if found {
		return known, nil
	}
	out, err := send(ctx, c, "find image "+id, c.ec2.DescribeImages, &ec2.DescribeImagesInput{ImageIds: []string{id}})
	if err != nil {
		return types.Image{}, createError(err)
	}
	for _, image := range out.Images {
		if aws.ToString(image.ImageId) == id && aws.ToString(image.RootDeviceName) != "" {
			c.facts.mu.Lock()
			defer c.facts.mu.Unlock()
			if len(c.facts.images) >= maxFacts {
				clear(c.facts.images)
			}
			c.facts.images[id] = image
			return image, nil
		}
	}
	return types.Image{}, missing("imageID", "the image %s does not exist in region %s", id, c.region)
}

func missing(field, format string, args ...any) error {
	e := provider.Errorf(provider.FailedPrecondition, format, args...)
	e.Field = field
	return e
}

// subnet returns the ID of a subnet. The ID of its VPC is empty if the reference contains an ID.
func (c *clients) subnet(ctx context.Context, field string, r machine.Reference) (id, vpc string, err error) {
	if r.ID != "" {
		return r.ID, "", nil
	}
	in := &ec2.DescribeSubnetsInput{Filters: referenceFilters(r)}
	pages := httpapi.List(ctx)
	found := map[string]string{}
	for {
		out, err := send(pages, c, "find a subnet by tags", c.ec2.DescribeSubnets, in)
		if err != nil {
			return "", "", createError(err)
		}
		for _, s := range out.Subnets {
			if hasTags(s.Tags, r.Tags) {
				found[aws.ToString(s.SubnetId)] = aws.ToString(s.VpcId)
			}
		}
		if aws.ToString(out.NextToken) == "" {
			break
		}
		in.NextToken = out.NextToken
	}
	if len(found) != 1 {
		return "", "", missing(field, "%d subnets in region %s have the tags; exactly one must have them", len(found),
			c.region)
	}
	for id, vpc = range found {
	}
	return id, vpc, nil
}

// groups returns the IDs of security groups. Groups by tags are only searched in the VPC, unless it is unknown.
func (c *clients) groups(ctx context.Context, field string, all []machine.Reference, vpc string) ([]string, error) {
	ids := make([]string, len(all))
	for i, r := range all {
		if r.ID != "" {
			ids[i] = r.ID
			continue
		}
		in := &ec2.DescribeSecurityGroupsInput{Filters: referenceFilters(r)}
		if vpc != "" {
			in.Filters = append(in.Filters, filter("vpc-id", vpc))
		}
		var found []string
		pages := httpapi.List(ctx)
		for {
			out, err := send(pages, c, "find a security group by tags", c.ec2.DescribeSecurityGroups, in)
			if err != nil {
				return nil, createError(err)
			}
			for _, g := range out.SecurityGroups {
				if id := aws.ToString(g.GroupId); hasTags(g.Tags, r.Tags) && !slices.Contains(found, id) &&
					(vpc == "" || aws.ToString(g.VpcId) == vpc) {
					found = append(found, id)
				}
			}
			if aws.ToString(out.NextToken) == "" {
				break
			}
			in.NextToken = out.NextToken
		}
		if len(found) != 1 {
			return nil, missing(fmt.Sprintf("%s[%d]", field, i),
				"%d security groups in region %s have the tags; exactly one "+
					"must have them", len(found), c.region)
		}
		ids[i] = found[0]
	}
	return ids, nil
}

func referenceFilters(r machine.Reference) (all []types.Filter) {
	for _, tag := range tagList(r.Tags) {
		all = append(all, tagFilter(aws.ToString(tag.Key), aws.ToString(tag.Value)))
	}
	return all
}

func hasTags(tags []types.Tag, want map[string]string) bool {
	have := tagMap(tags)
	for key, value := range want {
		if got, has := have[key]; !has || got != value {
			return false
		}
	}
	return true
}
