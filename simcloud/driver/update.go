package driver

import (
	"cmp"
	"context"
	"fmt"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// Update implements provider.Driver. Type, image and kubelet version change in place as far as the cloud says that they
// can, the version by an agent where the image has one; another place is another instance.
func (d *Driver) Update(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
	spec, err := d.parse(req.Class.Spec)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	client, err := d.client(req.Scope, req.Class.Credentials)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	in, err := find(ctx, client, req.ProviderID, own)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	if in, err = client.owned(ctx, in, own); err != nil {
		return provider.UpdateResult{}, err
	}
	result := func(outcome provider.UpdateOutcome, format string, args ...any) (provider.UpdateResult, error) {
		return provider.UpdateResult{Outcome: outcome, Reason: fmt.Sprintf(format, args...),
			Instance: convert(in, req.Scope)}, nil
	}
	switch {
	case in.State == simcloud.StateShuttingDown:
		return provider.UpdateResult{}, provider.Errorf(provider.Aborted, "update instance %s: it is being deleted",
			in.ProviderID)
	case cmp.Or(spec.Endpoint, d.endpoints[0]) != cmp.Or(req.Scope, d.endpoints[0]):
		return result(provider.UpdateNeedsReplacement, "the endpoint of an instance cannot change")
	case spec.Region != in.Region:
		return result(provider.UpdateNeedsReplacement, "region %q of an instance cannot become %q", in.Region, spec.Region)
	case spec.Zone != "" && spec.Zone != in.Zone:
		return result(provider.UpdateNeedsReplacement, "zone %q of an instance cannot become %q", in.Zone, spec.Zone)
	case in.State == simcloud.StateRebooting:
		return result(provider.UpdateInProgress, "the instance restarts")
	}
	change := changeOf(in, spec, req.Version)
	byAgent, err := leftToAgent(ctx, client, in, spec, req)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	if byAgent {
		change.KubeletVersion = ""
	}
	if byAgent && change == (simcloud.UpdateInstanceRequest{}) && cmp.Or(req.NodeVersion, versionOf(in)) != req.Version {
		return result(provider.UpdateByAgent, "")
	}
	if change == (simcloud.UpdateInstanceRequest{}) {
		return result(provider.UpdateDone, "")
	}
	if in.State == simcloud.StatePending {
		return result(provider.UpdateInProgress, "the instance has not booted yet")
	}
	mode, rejection, err := modeOf(ctx, client, in, change)
	switch {
	case err != nil:
		return provider.UpdateResult{}, err
	case rejection != "":
		return result(provider.UpdateRefused, "%s", rejection)
	case mode == simcloud.InPlaceUnsupported:
		return result(provider.UpdateNeedsReplacement, "the cloud cannot change the instance in place from %s to %s",
			describe(in.Type, in.Image, versionOf(in)), describe(spec.InstanceType, spec.Image, req.Version))
	case mode == simcloud.InPlaceRestart && !req.Drained:
		return result(provider.UpdateNeedsDrain, "the instance has to restart")
	}
	updated, err := client.UpdateInstance(ctx, in.ID, change)
	if simcloud.CodeOf(err) == simcloud.CodeUnsupportedOperation {
		return result(provider.UpdateNeedsReplacement, "the cloud cannot change the instance in place")
	}
	if err != nil {
		return provider.UpdateResult{}, translate(err, "update instance "+in.ProviderID)
	}
	if in = updated; in.State == simcloud.StateRebooting {
		return result(provider.UpdateInProgress, "the instance restarts")
	}
	if byAgent {
		return result(provider.UpdateInProgress, "the version is still to come")
	}
	return result(provider.UpdateDone, "")
}

// leftToAgent shows whether the version may have to change and the image that is wanted has an agent, which does so
// without the cloud.
func leftToAgent(ctx context.Context, client account, in *simcloud.Instance, spec Spec,
	req provider.UpdateRequest) (bool, error) {
	if req.Version == "" || versionOf(in) == req.Version && cmp.Or(req.NodeVersion, req.Version) == req.Version {
		return false, nil
	}
	images, err := client.ListImages(ctx)
	if err != nil {
		return false, translate(err, "list images")
	}
	image := findImage(images, spec.Image)
	return image != nil && image.NodeAgent, nil
}

// changeOf is what has to change; it is empty where nothing has to.
func changeOf(in *simcloud.Instance, spec Spec, version string) simcloud.UpdateInstanceRequest {
	var change simcloud.UpdateInstanceRequest
	if spec.InstanceType != in.Type {
		change.Type = spec.InstanceType
	}
	if spec.Image != in.Image {
		change.Image = spec.Image
	}
	if version != "" && version != versionOf(in) {
		change.KubeletVersion = version
	}
	return change
}

// versionOf is the kubelet version last asked for; empty where it is not known.
func versionOf(in *simcloud.Instance) string {
	return cmp.Or(in.KubeletVersion, in.Tags[tagVersion])
}

func describe(instanceType, image, version string) string {
	return fmt.Sprintf("(type %q, image %q, kubelet %q)", instanceType, image, version)
}

// modeOf is how the cloud makes the change: the strictest of its parts. A rejection says that it cannot be made at all.
func modeOf(ctx context.Context, client account, in *simcloud.Instance,
	change simcloud.UpdateInstanceRequest) (mode simcloud.InPlaceMode, rejection string, err error) {
	mode = simcloud.InPlaceLive
	stricter := func(m simcloud.InPlaceMode) {
		if m == simcloud.InPlaceUnsupported || mode == simcloud.InPlaceLive {
			mode = m
		}
	}
	if change.KubeletVersion != "" {
		// The cloud does not tell how; whoever changes a kubelet drains its node first.
		stricter(simcloud.InPlaceRestart)
	}
	if change.Type != "" {
		types, err := client.ListInstanceTypes(ctx)
		if err != nil {
			return "", "", translate(err, "list instance types")
		}
		from, to := findType(types, in.Type), findType(types, change.Type)
		switch {
		case to == nil:
			return "", fmt.Sprintf("the cloud has no instance type %q", change.Type), nil
		case from == nil || from.Architecture != to.Architecture:
			stricter(simcloud.InPlaceUnsupported)
		default:
			stricter(from.InPlace)
			stricter(to.InPlace)
		}
	}
	if change.Image != "" {
		images, err := client.ListImages(ctx)
		if err != nil {
			return "", "", translate(err, "list images")
		}
		to := findImage(images, change.Image)
		if to == nil {
			return "", fmt.Sprintf("the cloud has no image %q", change.Image), nil
		}
		stricter(to.InPlace)
	}
	return mode, "", nil
}
