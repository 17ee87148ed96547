package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// tagVersion stores the kubelet version of the user data for Update, because the cloud does not parse user data.
const tagVersion = "machinist-kubelet-version"

// Create implements provider.Driver.
func (d *Driver) Create(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
	spec, err := d.parse(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	if n := len(req.UserData.Reveal()); n > simcloud.MaxUserDataBytes {
		return nil, provider.Errorf(provider.InvalidArgument,
			"the user data has %d bytes, more than the %d that the cloud accepts", n, simcloud.MaxUserDataBytes)
	}
	client, err := d.client(spec.Endpoint, req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	// The client token prevents a second instance within an attempt. But an earlier attempt may have created an
	// instance with another token.
	if req.Token != string(req.Machine.UID)+"-1" {
		in, err := find(ctx, client, "", own)
		if err == nil {
			return convert(in, spec.Endpoint), nil
		}
		if !provider.IsNotFound(err) {
			return nil, err
		}
	}
	tags := maps.Clone(spec.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	maps.Copy(tags, own.withOwnerTags(req.Tags))
	if req.Version != "" {
		tags[tagVersion] = req.Version
	}
	in, err := client.CreateInstance(ctx, simcloud.CreateInstanceRequest{
		ClientToken: req.Token,
		Name:        req.Machine.Name,
		Region:      spec.Region,
		Zone:        spec.Zone,
		Type:        spec.InstanceType,
		Image:       spec.Image,
		UserData:    req.UserData.Reveal(),
		Tags:        tags,
	})
	if err != nil {
		return nil, createError(err, spec)
	}
	if in.State == simcloud.StateTerminated {
		// The caller then searches by UID, finds nothing, and starts another attempt.
		return nil, provider.Errorf(provider.AlreadyExists,
			"create instance: the client token belongs to instance %s, which is terminated", in.ID)
	}
	if err := own.owns(in); err != nil {
		return nil, err
	}
	return convert(in, spec.Endpoint), nil
}

// createError translates an error of CreateInstance. The message contains the requested parameters. If the cloud names
// the faulty parameter, the error names its field.
func createError(err error, spec Spec) error {
	position := spec.Region
	if spec.Zone != "" {
		position = spec.Zone
	}
	out := translate(err, fmt.Sprintf("create an instance of type %q from image %q in %q", spec.InstanceType,
		spec.Image, position))
	rejection, ok := errors.AsType[*simcloud.Error](err)
	if !ok || rejection.Code != simcloud.CodeInvalidParameter {
		return out
	}
	field, _, _ := strings.Cut(rejection.Message, ":")
	switch field {
	case "region":
		return notOffered("region", "the cloud has no region %q", spec.Region)
	case "zone":
		return notOffered("zone", "region %q has no zone %q", spec.Region, spec.Zone)
	case "type":
		return notOffered("instanceType", "the cloud has no instance type %q", spec.InstanceType)
	case "image":
		return notOffered("image", "the cloud has no image %q", spec.Image)
	}
	return out
}

// Get implements provider.Driver. If the request contains a provider ID, Get also returns an instance of another owner.
// An adoption reads the tags of such an instance.
func (d *Driver) Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
	own := owner{cluster: req.ClusterID, machine: req.Machine}
	if req.ProviderID == "" {
		var err error
		if own, err = ownerOf(req.ClusterID, req.Machine); err != nil {
			return nil, err
		}
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
	return convert(in, endpoint), nil
}

// Adopt implements provider.Adopter.
func (d *Driver) Adopt(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	endpoint := d.endpointOf("", req.Class.Spec)
	client, err := d.client(endpoint, req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	in, err := byProviderID(ctx, client, req.ProviderID)
	if err != nil {
		return nil, err
	}
	// The owner of the instance may have changed a moment ago.
	if in, err = client.currentInstance(ctx, in.ID); err != nil {
		return nil, translate(err, "read the tags of instance "+req.ProviderID)
	}
	if in == nil {
		return nil, provider.Errorf(provider.NotFound, "instance %s is terminated", req.ProviderID)
	}
	if !req.Replaces(convert(in, endpoint)) {
		for key, want := range own.tags() {
			if got, tagged := in.Tags[key]; tagged && got != want {
				return nil, own.owns(in)
			}
		}
	}
	if own.owns(in) != nil {
		if in, err = client.UpdateTags(ctx, in.ID, simcloud.UpdateTagsRequest{Set: own.withOwnerTags(req.Tags)}); err != nil {
			return nil, translate(err, "tag instance "+req.ProviderID)
		}
	}
	return convert(in, endpoint), nil
}

// List implements provider.Driver. List covers the whole account, because regions that no class uses anymore may
// still contain instances.
func (d *Driver) List(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
	if req.ClusterID == "" {
		return provider.ListPage{}, provider.Errorf(provider.InvalidArgument, "list instances: the cluster ID is empty")
	}
	endpoint := d.endpointOf("", req.Class.Spec)
	client, err := d.client(endpoint, req.Class.Credentials)
	if err != nil {
		return provider.ListPage{}, err
	}
	list, err := client.ListInstances(ctx, simcloud.ListInstancesOptions{
		Tags:      map[string]string{provider.TagCluster: req.ClusterID},
		States:    liveStates(),
		Limit:     d.pageSize,
		NextToken: req.Continue,
	})
	if err != nil {
		return provider.ListPage{}, translate(err, "list instances")
	}
	page := provider.ListPage{Continue: list.NextToken}
	for i := range list.Instances {
		in := &list.Instances[i]
		if in.Tags[provider.TagCluster] == req.ClusterID && in.State != simcloud.StateTerminated {
			page.Instances = append(page.Instances, *convert(in, endpoint))
		}
	}
	if page.Continue == "" {
		for address, err := range client.addresses(ctx, map[string]string{provider.TagCluster: req.ClusterID}) {
			if err != nil {
				return provider.ListPage{}, translate(err, "list addresses")
			}
			if address.InUse || address.Tags[provider.TagCluster] != req.ClusterID {
				continue
			}
			page.Leftovers = append(page.Leftovers, provider.Leftover{
				ID: address.ID, LaunchTime: address.LaunchTime,
				ClusterID:  address.Tags[provider.TagCluster],
				MachineUID: types.UID(address.Tags[provider.TagMachineUID]),
				MachineKey: address.Tags[provider.TagMachine],
			})
		}
	}
	return page, nil
}

// ListScope implements provider.Scoper. The scope of a list is only the endpoint, without a region: List returns the
// instances of an account in all regions.
func (d *Driver) ListScope(class provider.Class) (string, error) {
	return cmp.Or(d.endpointOf("", class.Spec), d.endpoints[0]), nil
}
