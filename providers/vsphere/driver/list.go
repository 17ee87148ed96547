package driver

import (
	"context"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/vsphere/machine"
)

// List implements provider.Driver. It returns the virtual machines in the folder of the class on one page.
func (d *Driver) List(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
	if req.ClusterID == "" {
		return provider.ListPage{}, provider.Errorf(provider.InvalidArgument,
			"list virtual machines: the cluster ID is empty")
	}
	at, err := machine.ParseLocation(req.Class.Spec)
	if err != nil {
		return provider.ListPage{}, err
	}
	s, err := d.session(req.Class.Credentials, at.VCenter)
	if err != nil {
		return provider.ListPage{}, err
	}
	all, err := s.machinesIn(ctx, at)
	if err != nil {
		return provider.ListPage{}, err
	}
	var page provider.ListPage
	seen := map[string]bool{}
	for _, vm := range all {
		in := s.convert(vm)
		if in.ClusterID != req.ClusterID || seen[in.ProviderID] {
			continue
		}
		seen[in.ProviderID] = true
		if in, err = s.convertNew(ctx, vm); err != nil {
			return provider.ListPage{}, err
		}
		page.Instances = append(page.Instances, *in)
	}
	return page, nil
}
