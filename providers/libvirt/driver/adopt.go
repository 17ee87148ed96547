package driver

import (
	"context"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/machine"
)

// Adopt implements provider.Adopter. A domain is adopted if Machinist's element of its metadata says
// adoptable="true": the credentials reach all of a hypervisor, and who may create a Machine must not be able to delete
// whatever is on it.
func (d *Driver) Adopt(ctx context.Context, req provider.AdoptRequest) (in *provider.Instance, err error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	id, err := locate(req.ProviderID)
	if err != nil {
		return nil, err
	}
	err = d.with(ctx, req.Class.Credentials, "", func(h *hypervisor) error {
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
		wanted := found.metadata
		own.identify(&wanted)
		wanted.Adoptable = ""
		// The domain counts as made from what the class says now. Of another class that a machine comes to have later,
		// Update must answer that it needs another domain.
		wanted.Spec, wanted.Type, wanted.Zone = specHash(spec), typeOf(spec), spec.Zone
		wanted.VCPUs, wanted.MemoryMiB, wanted.Addresses = spec.VCPUs, spec.MemoryMiB, spec.AddressSource
		if wanted.text() != found.metadata.text() {
			if err := h.label(ctx, found, wanted); err != nil {
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

// mayAdopt refuses a domain that is another's, and one that nobody has allowed to be adopted.
func mayAdopt(in *provider.Instance, d *domain, own owner, req provider.AdoptRequest) error {
	if req.Replaces(in) || own.owns(d.metadata) {
		return nil
	}
	m := d.metadata
	wanted := metadata{}
	own.identify(&wanted)
	if m.Cluster != "" && m.Cluster != wanted.Cluster || m.UID != "" && m.UID != wanted.UID ||
		m.Machine != "" && m.Machine != wanted.Machine {
		return provider.Errorf(provider.FailedPrecondition, "domain %s is tagged for machine %.128q (%.64q) of cluster %.128q",
			in.ProviderID, m.Machine, m.UID, m.Cluster)
	}
	if m.Adoptable != "true" {
		return provider.Errorf(provider.FailedPrecondition,
			"domain %s lacks adoptable=\"true\" in its metadata: set it to let the domain be adopted", in.ProviderID)
	}
	return nil
}
