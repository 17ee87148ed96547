package driver

import (
	"context"

	"github.com/digitalocean/go-libvirt"

	"machinist.dev/machinist/pkg/provider"
)

// Delete implements provider.Driver. After success, no resources of the Machine are left. Volumes are deleted before
// the domain, because only the domain's metadata list them.
func (d *Driver) Delete(ctx context.Context, req provider.DeleteRequest) (result provider.DeleteResult, err error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	var id libvirt.UUID
	if req.ProviderID != "" {
		if id, err = parseProviderID(req.ProviderID); err != nil {
			return provider.DeleteResult{}, err
		}
	}
	err = d.withHypervisor(ctx, req.Class.Credentials, req.Scope, func(h *hypervisor) error {
		if req.ProviderID != "" {
			result.Found, err = h.deleteByProviderID(ctx, id, own)
		} else {
			result.Found, err = h.deleteByOwner(ctx, own)
		}
		return err
	})
	if err != nil {
		return provider.DeleteResult{}, err
	}
	result.Gone = true
	return result, nil
}

// deleteByProviderID deletes one domain and its volumes. The volumes of the owner's other domains stay.
func (h *hypervisor) deleteByProviderID(ctx context.Context, id libvirt.UUID, own owner) (found bool, err error) {
	d, err := h.get(ctx, id)
	switch {
	case err == nil:
		if err := h.checkOwner(d, own); err != nil {
			return false, err
		}
		if err := h.destroy(ctx, d); err != nil {
			return false, err
		}
		found = true
	case !provider.IsNotFound(err):
		return false, err
	}
	ofDomain := func(v volume) bool { return libvirt.UUID(own.domainUUID(v.attempt)) == id }
	if err := h.deleteVolumes(ctx, own, ofDomain); err != nil {
		return false, err
	}
	if d == nil {
		return false, nil
	}
	return found, h.removeDomain(ctx, d, own)
}

func (h *hypervisor) deleteByOwner(ctx context.Context, own owner) (found bool, err error) {
	all, err := h.domainsOf(ctx, own)
	if err != nil {
		return false, err
	}
	for _, d := range all {
		if err := h.destroy(ctx, d); err != nil {
			return false, err
		}
	}
	if err := h.deleteVolumes(ctx, own, func(volume) bool { return true }); err != nil {
		return false, err
	}
	for _, d := range all {
		if err := h.removeDomain(ctx, d, own); err != nil {
			return false, err
		}
	}
	return len(all) > 0, nil
}

func (h *hypervisor) checkOwner(d *domain, own owner) error {
	if own.owns(d.metadata) {
		return nil
	}
	return provider.Errorf(provider.FailedPrecondition,
		"domain %s is tagged for machine %.64q of cluster %.128q, not for machine %q (%s/%s) of cluster %q",
		providerID(d.UUID), d.metadata.UID, d.metadata.Cluster, own.machine.UID, own.machine.Namespace, own.machine.Name,
		own.cluster)
}

// destroy stops the domain immediately. The node of the domain is already drained.
func (h *hypervisor) destroy(ctx context.Context, d *domain) error {
	attempted := "stop domain " + providerID(d.UUID)
	if d.metadata.Deleting == "" {
		// Otherwise, Get would report a domain without volumes as a stopped instance.
		updated := d.metadata
		updated.Deleting = "true"
		if err := h.writeMetadata(ctx, d, updated); err != nil {
			return err
		}
	}
	err := h.DomainDestroyFlags(d.Domain, libvirt.DomainDestroyDefault)
	if codeOf(err) != libvirt.ErrOperationInvalid {
		return ignoreNotFound(translate(ctx, err, attempted))
	}
	// A running domain would continue without its volumes and its definition.
	active, err := h.DomainIsActive(d.Domain)
	if err == nil && active != 0 {
		return provider.Errorf(provider.Aborted, "%s: another operation is using the domain", attempted)
	}
	return ignoreNotFound(translate(ctx, err, attempted))
}

// writeMetadata writes Machinist's element of a domain's metadata. For a running domain, it also writes the persistent
// definition, which applies after the next start.
func (h *hypervisor) writeMetadata(ctx context.Context, d *domain, m metadata) error {
	attempted := "write the metadata of domain " + providerID(d.UUID)
	active, err := h.DomainIsActive(d.Domain)
	if err != nil {
		return ignoreNotFound(translate(ctx, err, attempted))
	}
	persistent, err := h.DomainIsPersistent(d.Domain)
	if err != nil {
		return ignoreNotFound(translate(ctx, err, attempted))
	}
	var impact libvirt.DomainModificationImpact
	if active != 0 {
		impact |= libvirt.DomainAffectLive
	}
	if persistent != 0 {
		impact |= libvirt.DomainAffectConfig
	}
	err = h.DomainSetMetadata(d.Domain, int32(libvirt.DomainMetadataElement), libvirt.OptString{m.encode()},
		libvirt.OptString{"machinist"}, libvirt.OptString{metadataURI}, impact)
	if err != nil {
		return ignoreNotFound(translate(ctx, err, attempted))
	}
	d.metadata = m
	return nil
}

func ignoreNotFound(err error) error {
	if provider.IsNotFound(err) {
		return nil
	}
	return err
}

// deleteVolumes deletes the owner's volumes for which selected returns true.
func (h *hypervisor) deleteVolumes(ctx context.Context, own owner, selected func(volume) bool) error {
	all, err := h.listVolumes(ctx, own.volumePrefix())
	if err != nil {
		return err
	}
	for _, v := range all {
		if v.cluster != own.cluster || v.uid != string(own.machine.UID) || !selected(v) {
			continue
		}
		if err := h.deleteVolume(ctx, v.StorageVol); err != nil {
			return err
		}
	}
	return nil
}

// removeDomain removes the definition of a stopped domain. removeDomain fails if a pool that may contain a volume of
// the domain is inactive.
func (h *hypervisor) removeDomain(ctx context.Context, d *domain, own owner) error {
	attempted := "remove domain " + providerID(d.UUID)
	for _, v := range d.metadata.Volumes {
		// A user of the hypervisor may have changed the metadata.
		if cluster, uid, _, ours := volumeOwner(v.Name); !ours || cluster != own.cluster || uid != string(own.machine.UID) {
			continue
		}
		if _, err := h.pool(ctx, v.Pool, ""); err != nil && codeOf(err) != libvirt.ErrNoStoragePool {
			if provider.CodeOf(err) == provider.FailedPrecondition {
				return provider.Errorf(provider.FailedPrecondition,
					"%s: the storage pool %.64q with a volume of the domain is not active; start the pool", attempted, v.Pool)
			}
			return err
		}
	}
	err := h.undefine(d)
	switch {
	case err == nil, isAbsent(err):
		return nil
	case codeOf(err) == libvirt.ErrOperationInvalid:
		return provider.Errorf(provider.Aborted, "%s: the domain was started again", attempted)
	}
	return translate(ctx, err, attempted)
}

// undefine removes the definition of a domain and everything that libvirt stores for it.
func (h *hypervisor) undefine(d *domain) error {
	const all = libvirt.DomainUndefineManagedSave | libvirt.DomainUndefineSnapshotsMetadata
	err := h.DomainUndefineFlags(d.Domain, all|libvirt.DomainUndefineCheckpointsMetadata|libvirt.DomainUndefineNvram)
	if codeOf(err) == libvirt.ErrInvalidArg && messageContains(err, "unsupported flags") {
		// Some libvirt drivers, such as "test:///default", have no checkpoints or UEFI variables and do not support all
		// flags.
		err = h.DomainUndefineFlags(d.Domain, all)
	}
	return err
}
