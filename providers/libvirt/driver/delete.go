package driver

import (
	"context"

	"github.com/digitalocean/go-libvirt"

	"machinist.dev/machinist/pkg/provider"
)

// Delete implements provider.Driver. All is gone when it returns: a domain's volumes go before the domain itself, which
// says whose they are.
func (d *Driver) Delete(ctx context.Context, req provider.DeleteRequest) (result provider.DeleteResult, err error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	var id libvirt.UUID
	if req.ProviderID != "" {
		if id, err = locate(req.ProviderID); err != nil {
			return provider.DeleteResult{}, err
		}
	}
	err = d.with(ctx, req.Class.Credentials, req.Scope, func(h *hypervisor) error {
		if req.ProviderID != "" {
			result.Found, err = h.deleteOne(ctx, id, own)
		} else {
			result.Found, err = h.deleteAll(ctx, own)
		}
		return err
	})
	if err != nil {
		return provider.DeleteResult{}, err
	}
	result.Gone = true
	return result, nil
}

// deleteOne removes one domain. Volumes of the owner's other domains stay.
func (h *hypervisor) deleteOne(ctx context.Context, id libvirt.UUID, own owner) (found bool, err error) {
	d, err := h.get(ctx, id)
	switch {
	case err == nil:
		if err := h.mine(d, own); err != nil {
			return false, err
		}
		if err := h.end(ctx, d); err != nil {
			return false, err
		}
		found = true
	case !provider.IsNotFound(err):
		return false, err
	}
	ofIt := func(v volume) bool { return libvirt.UUID(own.domainUUID(v.attempt)) == id }
	if err := h.removeVolumes(ctx, own, ofIt); err != nil {
		return false, err
	}
	if d == nil {
		return false, nil
	}
	return found, h.forget(ctx, d, own)
}

// deleteAll removes all domains and all volumes of an owner.
func (h *hypervisor) deleteAll(ctx context.Context, own owner) (found bool, err error) {
	all, err := h.ownedBy(ctx, own)
	if err != nil {
		return false, err
	}
	for _, d := range all {
		if err := h.end(ctx, d); err != nil {
			return false, err
		}
	}
	if err := h.removeVolumes(ctx, own, func(volume) bool { return true }); err != nil {
		return false, err
	}
	for _, d := range all {
		if err := h.forget(ctx, d, own); err != nil {
			return false, err
		}
	}
	return len(all) > 0, nil
}

// mine refuses a domain that is not the owner's.
func (h *hypervisor) mine(d *domain, own owner) error {
	if own.owns(d.metadata) {
		return nil
	}
	return provider.Errorf(provider.FailedPrecondition,
		"domain %s is tagged for machine %.64q of cluster %.128q, not for machine %q (%s/%s) of cluster %q",
		providerID(d.UUID), d.metadata.UID, d.metadata.Cluster, own.machine.UID, own.machine.Namespace, own.machine.Name,
		own.cluster)
}

// end stops the domain's QEMU at once: its node is drained.
func (h *hypervisor) end(ctx context.Context, d *domain) error {
	attempted := "stop domain " + providerID(d.UUID)
	if d.metadata.Deleting == "" {
		// A domain without its volumes must not pass for one that has stopped.
		marked := d.metadata
		marked.Deleting = "true"
		if err := h.label(ctx, d, marked); err != nil {
			return err
		}
	}
	err := h.DomainDestroyFlags(d.Domain, libvirt.DomainDestroyDefault)
	if codeOf(err) != libvirt.ErrOperationInvalid {
		return skipGone(translate(ctx, err, attempted))
	}
	// It does not run, most likely. One that does would go on without its volumes, and without its definition.
	active, err := h.DomainIsActive(d.Domain)
	if err == nil && active != 0 {
		return provider.Errorf(provider.Aborted, "%s: another operation has it", attempted)
	}
	return skipGone(translate(ctx, err, attempted))
}

// label writes Machinist's part of a domain's metadata, of one that runs also for its next start.
func (h *hypervisor) label(ctx context.Context, d *domain, m metadata) error {
	attempted := "write the metadata of domain " + providerID(d.UUID)
	active, err := h.DomainIsActive(d.Domain)
	if err != nil {
		return skipGone(translate(ctx, err, attempted))
	}
	persistent, err := h.DomainIsPersistent(d.Domain)
	if err != nil {
		return skipGone(translate(ctx, err, attempted))
	}
	var impact libvirt.DomainModificationImpact
	if active != 0 {
		impact |= libvirt.DomainAffectLive
	}
	if persistent != 0 {
		impact |= libvirt.DomainAffectConfig
	}
	err = h.DomainSetMetadata(d.Domain, int32(libvirt.DomainMetadataElement), libvirt.OptString{m.text()},
		libvirt.OptString{"machinist"}, libvirt.OptString{metadataURI}, impact)
	if err != nil {
		return skipGone(translate(ctx, err, attempted))
	}
	d.metadata = m
	return nil
}

// skipGone is nil for a domain that has gone meanwhile.
func skipGone(err error) error {
	if provider.IsNotFound(err) {
		return nil
	}
	return err
}

// removeVolumes deletes the owner's volumes, of those that are chosen.
func (h *hypervisor) removeVolumes(ctx context.Context, own owner, chosen func(volume) bool) error {
	all, err := h.volumes(ctx, own.volumePrefix())
	if err != nil {
		return err
	}
	for _, v := range all {
		if v.cluster != own.cluster || v.uid != string(own.machine.UID) || !chosen(v) {
			continue
		}
		if err := h.remove(ctx, v.StorageVol); err != nil {
			return err
		}
	}
	return nil
}

// forget removes a domain that does not run, once none of the volumes that were made for it can be left.
func (h *hypervisor) forget(ctx context.Context, d *domain, own owner) error {
	attempted := "remove domain " + providerID(d.UUID)
	for _, v := range d.metadata.Volumes {
		// A user of the hypervisor may have changed what is there.
		if cluster, uid, _, ours := volumeOwner(v.Name); !ours || cluster != own.cluster || uid != string(own.machine.UID) {
			continue
		}
		if _, err := h.pool(ctx, v.Pool, ""); err != nil && codeOf(err) != libvirt.ErrNoStoragePool {
			if provider.CodeOf(err) == provider.FailedPrecondition {
				return provider.Errorf(provider.FailedPrecondition,
					"%s: the storage pool %.64q, which has a volume of it, is not active: start it", attempted, v.Pool)
			}
			return err
		}
	}
	err := h.undefine(d)
	switch {
	case err == nil, absent(err):
		return nil
	case codeOf(err) == libvirt.ErrOperationInvalid:
		return provider.Errorf(provider.Aborted, "%s: it has been started again", attempted)
	}
	return translate(ctx, err, attempted)
}

// undefine removes the definition of a domain with all that libvirt keeps beside it.
func (h *hypervisor) undefine(d *domain) error {
	const all = libvirt.DomainUndefineManagedSave | libvirt.DomainUndefineSnapshotsMetadata
	err := h.DomainUndefineFlags(d.Domain, all|libvirt.DomainUndefineCheckpointsMetadata|libvirt.DomainUndefineNvram)
	if codeOf(err) == libvirt.ErrInvalidArg && has(err, "unsupported flags") {
		// A driver of libvirt without checkpoints and variables of UEFI does not know the flags, such as "test:///default".
		err = h.DomainUndefineFlags(d.Domain, all)
	}
	return err
}
