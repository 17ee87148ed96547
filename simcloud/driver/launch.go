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

// tagVersion records the kubelet version that the user data was rendered for: Update has to know it, and the cloud does
// not look into user data.
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
			"the user data is %d bytes long, more than the %d that the cloud takes", n, simcloud.MaxUserDataBytes)
	}
	client, err := d.client(spec.Endpoint, req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	// The cloud's own idempotency covers all tries of one attempt. Only an attempt after the first can meet an instance
	// that another token made.
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
	maps.Copy(tags, own.complete(req.Tags))
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
		// The token is spent: what it made came and went. The caller looks by UID, finds nothing and opens an attempt.
		return nil, provider.Errorf(provider.AlreadyExists,
			"create instance: the token made instance %s, which is terminated", in.ID)
	}
	if err := own.owns(in); err != nil {
		return nil, err
	}
	return convert(in, spec.Endpoint), nil
}

// createError says what was asked for, and which field is to blame where the cloud names one.
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
		return unserved("region", "the cloud has no region %q", spec.Region)
	case "zone":
		return unserved("zone", "region %q has no zone %q", spec.Region, spec.Zone)
	case "type":
		return unserved("instanceType", "the cloud has no instance type %q", spec.InstanceType)
	case "image":
		return unserved("image", "the cloud has no image %q", spec.Image)
	}
	return out
}

// Get implements provider.Driver. By provider ID it returns the instance whoever's it is: who adopts one has to see its
// tags.
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
	// It may be another's since a moment ago, or not ours any more.
	if in, err = client.current(ctx, in.ID); err != nil {
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
		if in, err = client.UpdateTags(ctx, in.ID, simcloud.UpdateTagsRequest{Set: own.complete(req.Tags)}); err != nil {
			return nil, translate(err, "tag instance "+req.ProviderID)
		}
	}
	return convert(in, endpoint), nil
}

// List implements provider.Driver. It lists the whole account: a region that no class names any more may still hold
// instances.
func (d *Driver) List(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
	if req.ClusterID == "" {
		return provider.ListPage{}, provider.Errorf(provider.InvalidArgument, "list instances: the cluster id is empty")
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

// ListScope implements provider.Scoper: List shows all regions of the account that the credentials open at an endpoint.
func (d *Driver) ListScope(class provider.Class) (string, error) {
	return cmp.Or(d.endpointOf("", class.Spec), d.endpoints[0]), nil
}
