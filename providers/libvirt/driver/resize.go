package driver

import (
	"context"
	"time"

	"github.com/digitalocean/go-libvirt"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/machine"
)

// startPending is the value of metadata.Stopping after a domain was stopped for a resize. The domain must be started
// again.
const startPending = "start"

// hasSizes reports whether a domain has the wanted sizes and no resize is in progress.
func hasSizes(m metadata, spec machine.Spec) bool {
	return m.VCPUs == spec.VCPUs && m.MemoryMiB == spec.MemoryMiB && m.Stopping == ""
}

// resize changes the sizes of a domain with a drained node. The new sizes take effect at the next start. The metadata
// record the progress, so that another process can continue.
func (h *hypervisor) resize(ctx context.Context, d *domain, spec machine.Spec,
	grace time.Duration) (provider.UpdateOutcome, error) {
	attempted := "resize domain " + providerID(d.UUID)
	active, err := h.DomainIsActive(d.Domain)
	if err != nil {
		return "", translate(ctx, err, attempted)
	}
	if active != 0 && d.metadata.Stopping != startPending {
		return provider.UpdateInProgress, h.stop(ctx, d, grace)
	}
	if active == 0 {
		if err := h.setSizes(ctx, d, spec); err != nil {
			return "", err
		}
	}
	if active == 0 && d.metadata.Stopping != "" { // Otherwise, the domain was off before the resize, and stays off.
		updated := d.metadata
		updated.Stopping = startPending
		if err := h.writeMetadata(ctx, d, updated); err != nil {
			return "", err
		}
		if err := h.DomainCreate(d.Domain); err != nil && codeOf(err) != libvirt.ErrOperationInvalid {
			return "", translate(ctx, err, attempted)
		}
	}
	updated := d.metadata
	updated.VCPUs, updated.MemoryMiB, updated.Type, updated.Stopping = spec.VCPUs, spec.MemoryMiB, instanceType(spec), ""
	return provider.UpdateDone, h.writeMetadata(ctx, d, updated)
}

// stop asks the guest to shut down. After the grace period, it stops the domain.
func (h *hypervisor) stop(ctx context.Context, d *domain, grace time.Duration) error {
	attempted := "stop domain " + providerID(d.UUID)
	since, err := time.Parse(time.RFC3339, d.metadata.Stopping)
	if err != nil { // The metadata contain no stop time, so the stop has not begun.
		updated := d.metadata
		updated.Stopping = timestamp()
		if err := h.writeMetadata(ctx, d, updated); err != nil {
			return err
		}
		since = time.Now()
	}
	if time.Since(since) < grace {
		err = h.DomainShutdown(d.Domain)
	} else {
		err = h.DomainDestroyFlags(d.Domain, libvirt.DomainDestroyDefault)
	}
	if codeOf(err) == libvirt.ErrOperationInvalid {
		return nil // The domain has just stopped.
	}
	return translate(ctx, err, attempted)
}

func (h *hypervisor) setSizes(ctx context.Context, d *domain, spec machine.Spec) error {
	attempted := "resize domain " + providerID(d.UUID)
	const config = uint32(libvirt.DomainAffectConfig)
	memory := uint64(spec.MemoryMiB) << 10
	for _, set := range []func() error{
		func() error { return h.DomainSetMemoryFlags(d.Domain, memory, config|uint32(libvirt.DomainMemMaximum)) },
		func() error { return h.DomainSetMemoryFlags(d.Domain, memory, config) },
		func() error {
			return h.DomainSetVcpusFlags(d.Domain, uint32(spec.VCPUs), config|uint32(libvirt.DomainVCPUMaximum))
		},
		func() error { return h.DomainSetVcpusFlags(d.Domain, uint32(spec.VCPUs), config) },
	} {
		if err := set(); err != nil {
			return translate(ctx, err, attempted)
		}
	}
	return nil
}
