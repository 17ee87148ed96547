package driver

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/machine"
)

// Update implements provider.Driver. In place change the zone, which is a label; the processors and the memory, by a
// restart of the domain; and the kubelet's version, where the image has an agent for that.
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
		if result.Outcome, result.Reason, err = h.update(ctx, found, spec, req, d.options.ShutdownGrace); err != nil {
			return err
		}
		result.Instance, err = h.instance(ctx, found)
		return err
	})
	if err != nil {
		return provider.UpdateResult{}, err
	}
	return result, nil
}

// update does the next step of what can be done in place.
func (h *hypervisor) update(ctx context.Context, found *domain, spec machine.Spec, req provider.UpdateRequest,
	grace time.Duration) (outcome provider.UpdateOutcome, reason string, err error) {
	if reason := replacement(found.metadata, spec, req); reason != "" {
		return provider.UpdateNeedsReplacement, reason, nil
	}
	if found.metadata.Zone != spec.Zone {
		wanted := found.metadata
		wanted.Zone = spec.Zone
		if err := h.label(ctx, found, wanted); err != nil {
			return "", "", err
		}
	}
	switch {
	case resized(found.metadata, spec):
	case !req.Drained && found.metadata.Stopping == "":
		return provider.UpdateNeedsDrain, "", nil
	default:
		outcome, err := h.resize(ctx, found, spec, grace)
		if err != nil || outcome != provider.UpdateDone {
			return outcome, "", err
		}
	}
	if spec.KubeletAgent && req.Version != "" && cmp.Or(req.NodeVersion, found.metadata.Version) != req.Version {
		return provider.UpdateByAgent, "", nil
	}
	return provider.UpdateDone, "", nil
}

// replacement says why only another domain will do, empty where this one will.
func replacement(m metadata, spec machine.Spec, req provider.UpdateRequest) string {
	switch {
	case m.Spec != "" && m.Spec != specHash(spec):
		return "of a domain only vcpus, memoryMiB and zone change in place"
	case !spec.KubeletAgent && req.Version != "" && m.Version != "" && m.Version != req.Version:
		return fmt.Sprintf("the kubelet was installed as version %.64s, and %.64s is wanted", m.Version, req.Version)
	}
	return ""
}
