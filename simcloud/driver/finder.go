package driver

import (
	"cmp"
	"context"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

var _ provider.Finder = (*Driver)(nil)

// Find implements provider.Finder. Find covers the whole account, as List does. Every instance of the account may be
// adopted.
func (d *Driver) Find(ctx context.Context, req provider.FindRequest) ([]provider.FoundInstance, error) {
	spec, err := d.parse(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	client, err := d.client(spec.Endpoint, req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	var all []provider.FoundInstance
	seen := map[string]bool{}
	for in, err := range client.Instances(ctx, simcloud.ListInstancesOptions{States: liveStates(), Limit: d.pageSize}) {
		if err != nil {
			return nil, translate(err, "list all instances")
		}
		// Two pages may contain the same instance.
		if seen[in.ID] || in.State == simcloud.StateTerminated {
			continue
		}
		seen[in.ID] = true
		found := provider.FoundInstance{Instance: *convert(in, spec.Endpoint), Name: cmp.Or(in.Name, in.Hostname),
			Metadata: in.Tags, Differences: differences(in, spec)}
		for _, tag := range []string{LegacyTagMachine, LegacyTagRole} {
			if _, tagged := in.Tags[tag]; tagged && found.OtherSystem == "" {
				found.OtherSystem = "another machine controller (tag " + tag + ")"
			}
		}
		all = append(all, found)
	}
	return all, nil
}

func differences(in *simcloud.Instance, spec Spec) []provider.Difference {
	return provider.Differing([]provider.Difference{
		{Field: "region", Instance: in.Region, Class: spec.Region},
		{Field: "zone", Instance: in.Zone, Class: cmp.Or(spec.Zone, in.Zone)},
		{Field: "instanceType", Instance: in.Type, Class: spec.InstanceType},
		{Field: "image", Instance: in.Image, Class: spec.Image},
	}...)
}
