package driver

import (
	"cmp"
	"context"
	"fmt"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// Update implements provider.Driver. Update changes the type, the image and the kubelet version in place if the cloud
// supports this. An agent in the image may change the kubelet version instead. Another region, zone or endpoint
// requires another instance.
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
	if in, err = client.ownedInstance(ctx, in, own); err != nil {
		return provider.UpdateResult{}, err
	}
	result := func(outcome provider.UpdateOutcome, format string, args ...any) (provider.UpdateResult, error) {
		return provider.UpdateResult{Outcome: outcome, Reason: fmt.Sprintf(format, args...),
			Instance: convert(in, req.Scope)}, nil
	}
	switch {
	case in.State == simcloud.StateShuttingDown:
		return provider.UpdateResult{}, provider.Errorf(provider.Aborted, "update instance %s: the instance is being "+
			"deleted", in.ProviderID)
	case cmp.Or(spec.Endpoint, d.endpoints[0]) != cmp.Or(req.Scope, d.endpoints[0]):
		return result(provider.UpdateNeedsReplacement, "the endpoint of an instance cannot be changed")
	case spec.Region != in.Region:
		return result(provider.UpdateNeedsReplacement, "the region of an instance cannot be changed from %q to %q", in.Region,
			spec.Region)
	case spec.Zone != "" && spec.Zone != in.Zone:
		return result(provider.UpdateNeedsReplacement, "the zone of an instance cannot be changed from %q to %q", in.Zone,
			spec.Zone)
	case in.State == simcloud.StateRebooting:
		return result(provider.UpdateInProgress, "the instance is restarting")
	case in.State == simcloud.StateStopping:
		return result(provider.UpdateInProgress, "the instance is being switched off")
	}
	change := changeOf(in, spec, req.Version)
	byAgent, err := changedByAgent(ctx, client, in, spec, req)
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
	if in.State == simcloud.StatePending || in.State == simcloud.StateStarting {
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
	case mode == simcloud.InPlaceRestart && !req.NodeDrained:
		return result(provider.UpdateNeedsDrain, "the instance must restart")
	}
	updated, err := client.UpdateInstance(ctx, in.ID, change)
	if simcloud.CodeOf(err) == simcloud.CodeUnsupportedOperation {
		return result(provider.UpdateNeedsReplacement, "the cloud cannot change the instance in place")
	}
	if err != nil {
		return provider.UpdateResult{}, translate(err, "update instance "+in.ProviderID)
	}
	if in = updated; in.State == simcloud.StateRebooting {
		return result(provider.UpdateInProgress, "the instance is restarting")
	}
	if byAgent {
		return result(provider.UpdateInProgress, "the kubelet version has not changed yet")
	}
	return result(provider.UpdateDone, "")
}

// changedByAgent reports whether an agent in the requested image will change the kubelet version.
func changedByAgent(ctx context.Context, client account, in *simcloud.Instance, spec Spec,
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

// changeOf returns a request for all differing properties. It is empty if nothing differs.
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

// versionOf returns the last requested kubelet version, or "" if unknown.
func versionOf(in *simcloud.Instance) string {
	return cmp.Or(in.KubeletVersion, in.Tags[tagVersion])
}

func describe(instanceType, image, version string) string {
	return fmt.Sprintf("(type %q, image %q, kubelet %q)", instanceType, image, version)
}

// modeOf returns the strictest in-place mode of the requested changes. If a change is impossible, rejection is the
// reason.
func modeOf(ctx context.Context, client account, in *simcloud.Instance,
	change simcloud.UpdateInstanceRequest) (mode simcloud.InPlaceMode, rejection string, err error) {
	mode = simcloud.InPlaceLive
	stricter := func(m simcloud.InPlaceMode) {
		if m == simcloud.InPlaceUnsupported || mode == simcloud.InPlaceLive {
			mode = m
		}
	}
	if change.KubeletVersion != "" {
		// The API of the cloud does not show whether a change of the kubelet restarts the instance. So assume that the
		// instance is restarted. The Node is drained before a kubelet update in any case.
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
