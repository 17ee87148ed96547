package driver

import (
	"context"
	"strings"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/machine"
)

// missingMark is the end of an error message that begins with a domain.
func missingMark(providerID string) string {
	return ` lacks adoptable="true" in its metadata: set it to allow the adoption: virsh metadata ` +
		strings.TrimPrefix(providerID, providerIDPrefix) + ` --uri ` + metadataURI +
		` --key machinist --live --config --set '<machine adoptable="true"/>'`
}

// Adopt implements provider.Adopter. The metadata of the domain must contain adoptable="true" in Machinist's element.
// Otherwise, every user who may create Machines could delete any domain of the hypervisor, because the credentials
// reach all of them.
func (d *Driver) Adopt(ctx context.Context, req provider.AdoptRequest) (in *provider.Instance, err error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	id, err := parseProviderID(req.ProviderID)
	if err != nil {
		return nil, err
	}
	err = d.withHypervisor(ctx, req.Class.Credentials, "", func(h *hypervisor) error {
		found, err := h.get(ctx, id)
		if err != nil {
			return err
		}
		if in, err = h.instance(ctx, found); err != nil {
			return err
		}
		if err := mayAdopt(in, found, own, req); err != nil {
			return err
		}
		updated := found.metadata
		own.tag(&updated)
		// Record the current class, so that Update detects when the Machine later gets a class that requires a
		// different domain.
		updated.Spec, updated.Type, updated.Zone = specHash(spec), instanceType(spec), spec.Zone
		updated.VCPUs, updated.MemoryMiB, updated.Addresses = spec.VCPUs, spec.MemoryMiB, spec.AddressSource
		if updated.encode() != found.metadata.encode() {
			if err := h.writeMetadata(ctx, found, updated); err != nil {
				return err
			}
			if found, err = h.get(ctx, id); err != nil {
				return err
			}
		}
		in, err = h.instance(ctx, found)
		return err
	})
	if err != nil {
		return nil, err
	}
	return in, nil
}

// mayAdopt refuses a domain of another machine, and a domain that is not marked as adoptable.
func mayAdopt(in *provider.Instance, d *domain, own owner, req provider.AdoptRequest) error {
	if req.Replaces(in) || own.owns(d.metadata) {
		return nil
	}
	m := d.metadata
	expected := metadata{}
	own.tag(&expected)
	if m.Cluster != "" && m.Cluster != expected.Cluster || m.UID != "" && m.UID != expected.UID ||
		m.Machine != "" && m.Machine != expected.Machine {
		return provider.Errorf(provider.FailedPrecondition, "domain %s is tagged for machine %.128q (%.64q) of cluster %.128q",
			in.ProviderID, m.Machine, m.UID, m.Cluster)
	}
	if m.Adoptable != "true" {
		return provider.Errorf(provider.FailedPrecondition, "domain %s%s", in.ProviderID, missingMark(in.ProviderID))
	}
	return nil
}
