package driver

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/machine"
)

// Update implements provider.Driver. The zone is only a label and changes without a restart. A change of processors or
// memory requires a restart of the domain. The kubelet version changes in place if the image contains an agent for
// this.
func (d *Driver) Update(ctx context.Context, req provider.UpdateRequest) (result provider.UpdateResult, err error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	id, err := parseProviderID(req.ProviderID)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	err = d.withHypervisor(ctx, req.Class.Credentials, req.Scope, func(h *hypervisor) error {
		found, err := h.get(ctx, id)
		if err != nil {
			return err
		}
		if err := h.checkOwner(found, own); err != nil {
			return err
		}
		if found.metadata.Deleting != "" {
			return provider.Errorf(provider.Aborted, "update domain %s: the domain is being deleted", req.ProviderID)
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

// update performs the next step of an update in place.
func (h *hypervisor) update(ctx context.Context, found *domain, spec machine.Spec, req provider.UpdateRequest,
	grace time.Duration) (outcome provider.UpdateOutcome, reason string, err error) {
	if reason := replacementReason(found.metadata, spec, req); reason != "" {
		return provider.UpdateNeedsReplacement, reason, nil
	}
	if found.metadata.Zone != spec.Zone {
		updated := found.metadata
		updated.Zone = spec.Zone
		if err := h.writeMetadata(ctx, found, updated); err != nil {
			return "", "", err
		}
	}
	switch {
	case hasSizes(found.metadata, spec):
	case !req.NodeDrained && found.metadata.Stopping == "":
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

// replacementReason returns why the change requires a new domain, or an empty string.
func replacementReason(m metadata, spec machine.Spec, req provider.UpdateRequest) string {
	switch {
	case m.Spec != "" && m.Spec != specHash(spec):
		return "only vcpus, memoryMiB and zone of a domain can change in place"
	case !spec.KubeletAgent && req.Version != "" && m.Version != "" && m.Version != req.Version:
		return fmt.Sprintf("the kubelet was installed with version %.64s, but version %.64s is wanted", m.Version, req.Version)
	}
	return ""
}
