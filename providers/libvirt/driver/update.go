package driver

import (
	"context"
	"fmt"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/machine"
)

// Update implements provider.Driver. Only the zone, which is a label, changes in place.
func (d *Driver) Update(ctx context.Context, req provider.UpdateRequest) (result provider.UpdateResult, err error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	id, err := locate(req.ProviderID)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	err = d.with(ctx, req.Class.Credentials, req.Scope, func(h *hypervisor) error {
		found, err := h.get(ctx, id)
		if err != nil {
			return err
		}
		if err := h.mine(found, own); err != nil {
			return err
		}
		if found.metadata.Deleting != "" {
			return provider.Errorf(provider.Aborted, "update domain %s: it is being deleted", req.ProviderID)
		}
		if result.Reason = replacement(found.metadata, spec, req); result.Reason != "" {
			result.Outcome = provider.UpdateNeedsReplacement
		} else {
			result.Outcome = provider.UpdateDone
			if found.metadata.Zone != spec.Zone {
				wanted := found.metadata
				wanted.Zone = spec.Zone
				if err := h.label(ctx, found, wanted); err != nil {
					return err
				}
			}
		}
		result.Instance, err = h.instance(ctx, found)
		return err
	})
	if err != nil {
		return provider.UpdateResult{}, err
	}
	return result, nil
}

// replacement says why only another domain will do, empty where this one will.
func replacement(m metadata, spec machine.Spec, req provider.UpdateRequest) string {
	switch {
	case m.Spec != "" && m.Spec != specHash(spec):
		return "of a domain only the zone changes in place"
	case req.Version != "" && m.Version != "" && m.Version != req.Version:
		return fmt.Sprintf("the kubelet was installed as version %.64s, and %.64s is wanted", m.Version, req.Version)
	}
	return ""
}
