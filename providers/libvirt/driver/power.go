package driver

import (
	"context"

	"github.com/digitalocean/go-libvirt"

	"machinist.dev/machinist/pkg/provider"
)

// SetPower implements provider.Power. A domain that is off does not start with the hypervisor. Its memory is not
// reserved, so PowerOn can fail with ResourceExhausted, whatever KeepCapacity was.
func (d *Driver) SetPower(ctx context.Context, req provider.PowerRequest) (in *provider.Instance, err error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	id, err := parseProviderID(req.ProviderID)
	if err != nil {
		return nil, err
	}
	err = d.withHypervisor(ctx, req.Class.Credentials, req.Scope, func(h *hypervisor) error {
		found, err := h.get(ctx, id)
		if err != nil {
			return err
		}
		if err := h.checkOwner(found, own); err != nil {
			return err
		}
		if found.metadata.Deleting == "" {
			if err := h.setPower(ctx, found, req.Action); err != nil {
				return err
			}
		}
		in, err = h.instance(ctx, found)
		if err != nil || in.State != provider.StateStopped || req.Action == provider.PowerOn {
			return err
		}
		// A paused domain counts as stopped, but can continue with the content of its memory.
		if off, err := h.isOff(ctx, found); err != nil {
			return err
		} else if !off {
			in.State = provider.StateRunning
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return in, nil
}

func (h *hypervisor) setPower(ctx context.Context, d *domain, action provider.PowerAction) error {
	attempted := "change the power state of domain " + providerID(d.UUID)
	persistent, err := h.DomainIsPersistent(d.Domain)
	if err != nil {
		return translate(ctx, err, attempted)
	}
	if persistent == 0 {
		in, err := h.instance(ctx, d)
		if err == nil && in.State == provider.StatePending {
			err = provider.Errorf(provider.Aborted, "%s: the domain is being created", attempted)
		} else if err == nil {
			err = provider.Errorf(provider.Unimplemented, "%s: the domain is transient, so libvirt removes it when it stops",
				attempted)
		}
		return err
	}
	autostart := int32(0)
	if action == provider.PowerOn {
		autostart = 1
	}
	if err := h.DomainSetAutostart(d.Domain, autostart); err != nil {
		return translate(ctx, err, attempted)
	}
	switch action {
	case provider.PowerOn:
		return h.powerOn(ctx, d, attempted)
	case provider.PowerOff:
		err = h.powerOff(ctx, d, attempted)
	case provider.PowerForceOff:
		err = h.powerForceOff(ctx, d, attempted)
	default:
		return provider.Errorf(provider.InvalidArgument, "the power action %.64q does not exist", action)
	}
	if err != nil || d.metadata.Stopping == "" {
		return err
	}
	updated := d.metadata
	updated.Stopping = "" // Otherwise, a resize that was in progress would start the domain again.
	return h.writeMetadata(ctx, d, updated)
}

func (h *hypervisor) powerOn(ctx context.Context, d *domain, attempted string) error {
	if err := h.DomainCreate(d.Domain); err == nil || h.isActive(d) != 1 {
		return translate(ctx, err, attempted)
	}
	// The domain was active before the call.
	in, err := h.instance(ctx, d)
	if err == nil && in.State == provider.StateStopped {
		err = provider.Errorf(provider.FailedPrecondition,
			"%s: %s; resume the domain on the hypervisor, or switch it off first", attempted, in.StateMessage)
	}
	return err
}

// powerOff asks the guest to shut down.
func (h *hypervisor) powerOff(ctx context.Context, d *domain, attempted string) error {
	err := h.DomainShutdown(d.Domain)
	if codeOf(err) == libvirt.ErrOperationInvalid || err != nil && h.isActive(d) == 0 {
		return nil // The domain is off, saved, or suspended. The caller checks this.
	}
	return translate(ctx, err, attempted)
}

// powerForceOff stops the domain and discards the content of its memory.
func (h *hypervisor) powerForceOff(ctx context.Context, d *domain, attempted string) error {
	err := h.DomainDestroyFlags(d.Domain, libvirt.DomainDestroyDefault)
	if err != nil && codeOf(err) != libvirt.ErrOperationInvalid && h.isActive(d) != 0 {
		return translate(ctx, err, attempted)
	}
	saved, err := h.DomainHasManagedSaveImage(d.Domain, 0)
	if err == nil && saved != 0 {
		err = h.DomainManagedSaveRemove(d.Domain, 0)
	}
	return translate(ctx, err, attempted)
}

// isActive returns 1 for an active domain, 0 for another domain, and -1 if libvirtd does not answer. Depending on
// the hypervisor, libvirt uses different error codes for a domain that is already in the wanted state.
func (h *hypervisor) isActive(d *domain) int32 {
	active, err := h.DomainIsActive(d.Domain)
	if err != nil {
		return -1
	}
	return active
}

// isOff reports whether a domain is not active and has no saved memory from which it could continue.
func (h *hypervisor) isOff(ctx context.Context, d *domain) (bool, error) {
	active, err := h.DomainIsActive(d.Domain)
	if err != nil || active != 0 {
		return false, translate(ctx, err, "check domain "+providerID(d.UUID))
	}
	saved, err := h.DomainHasManagedSaveImage(d.Domain, 0)
	return saved == 0, translate(ctx, err, "check domain "+providerID(d.UUID))
}
