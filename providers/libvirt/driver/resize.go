package driver

import (
	"context"
	"time"

	"github.com/digitalocean/go-libvirt"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/machine"
)

// startAgain is the value of metadata.Stopping of a domain that was stopped for new sizes, until it is started.
const startAgain = "start"

// resized says whether a domain has the sizes that are wanted, and nothing of a change is under way.
func resized(m metadata, spec machine.Spec) bool {
	return m.VCPUs == spec.VCPUs && m.MemoryMiB == spec.MemoryMiB && m.Stopping == ""
}

// resize gives a domain whose node is drained other sizes: its processors and its memory are those of its next start.
// What has been done is in the metadata, so that another process goes on with it.
func (h *hypervisor) resize(ctx context.Context, d *domain, spec machine.Spec,
	grace time.Duration) (provider.UpdateOutcome, error) {
	attempted := "resize domain " + providerID(d.UUID)
	active, err := h.DomainIsActive(d.Domain)
	if err != nil {
		return "", translate(ctx, err, attempted)
	}
	if active != 0 && d.metadata.Stopping != startAgain {
		return provider.UpdateInProgress, h.stop(ctx, d, grace)
	}
	if active == 0 {
		if err := h.setSizes(ctx, d, spec); err != nil {
			return "", err
		}
		wanted := d.metadata
		wanted.Stopping = startAgain
		if err := h.label(ctx, d, wanted); err != nil {
			return "", err
		}
		if err := h.DomainCreate(d.Domain); err != nil && codeOf(err) != libvirt.ErrOperationInvalid {
			return "", translate(ctx, err, attempted)
		}
	}
	wanted := d.metadata
	wanted.VCPUs, wanted.MemoryMiB, wanted.Type, wanted.Stopping = spec.VCPUs, spec.MemoryMiB, typeOf(spec), ""
	return provider.UpdateDone, h.label(ctx, d, wanted)
}

// stop asks the guest to shut down, and ends its QEMU where it has not done so in time.
func (h *hypervisor) stop(ctx context.Context, d *domain, grace time.Duration) error {
	attempted := "stop domain " + providerID(d.UUID)
	since, err := time.Parse(time.RFC3339, d.metadata.Stopping)
	if err != nil { // It is not being stopped yet.
		marked := d.metadata
		marked.Stopping = now()
		if err := h.label(ctx, d, marked); err != nil {
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
		return nil // It has just gone off.
	}
	return translate(ctx, err, attempted)
}

// setSizes writes the sizes of a domain's next start.
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
