package driver

import (
	"context"
	"strings"

	"github.com/digitalocean/go-libvirt"

	"machinist.dev/machinist/pkg/provider"
)

// domain is a libvirt domain with Machinist's metadata.
type domain struct {
	libvirt.Domain
	metadata metadata
}

func (h *hypervisor) get(ctx context.Context, id libvirt.UUID) (*domain, error) {
	found, err := h.DomainLookupByUUID(id)
	if err != nil {
		return nil, translate(ctx, err, "get domain "+providerID(id))
	}
	return h.readMetadata(ctx, found)
}

func (h *hypervisor) readMetadata(ctx context.Context, d libvirt.Domain) (*domain, error) {
	text, err := h.DomainGetMetadata(d, int32(libvirt.DomainMetadataElement), libvirt.OptString{metadataURI},
		libvirt.DomainAffectCurrent)
	if codeOf(err) == libvirt.ErrNoDomainMetadata {
		return &domain{Domain: d}, nil
	}
	if err != nil {
		return nil, translate(ctx, err, "read the metadata of domain "+providerID(d.UUID))
	}
	return &domain{Domain: d, metadata: parseMetadata(text)}, nil
}

// listDomains returns all domains for which wanted returns true, without duplicates. listDomains reads only the
// metadata of domains for which candidate returns true.
func (h *hypervisor) listDomains(ctx context.Context, wanted func(*domain) bool,
	candidate func(libvirt.Domain) bool) ([]*domain, error) {
	listed, _, err := h.ConnectListAllDomains(1, 0)
	if err != nil {
		return nil, translate(ctx, err, "list domains")
	}
	all := make([]*domain, 0, len(listed))
	seen := map[libvirt.UUID]bool{}
	for _, d := range listed {
		if seen[d.UUID] || !candidate(d) {
			continue
		}
		seen[d.UUID] = true
		described, err := h.readMetadata(ctx, d)
		if provider.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if wanted(described) {
			all = append(all, described)
		}
	}
	return all, nil
}

func anyDomain(libvirt.Domain) bool { return true }

func (h *hypervisor) domainsOf(ctx context.Context, own owner) ([]*domain, error) {
	return h.listDomains(ctx, func(d *domain) bool { return own.owns(d.metadata) }, anyDomain)
}

// preferredInstance returns the preferred one of several domains of a machine: first running and pending domains,
// then stopped domains, then domains that are being deleted. Without a domain, it returns nil.
func (h *hypervisor) preferredInstance(ctx context.Context, all []*domain) (*provider.Instance, *domain, error) {
	rank := map[provider.InstanceState]int{provider.StateRunning: 3, provider.StatePending: 3, provider.StateStopped: 2}
	var best *provider.Instance
	var of *domain
	for _, d := range all {
		in, err := h.instance(ctx, d)
		if provider.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if best == nil || rank[in.State] > rank[best.State] ||
			rank[in.State] == rank[best.State] && in.ProviderID < best.ProviderID {
			best, of = in, d
		}
	}
	return best, of, nil
}

// halfStarted reports whether a domain is being started and not yet persistent. If libvirtd ends meanwhile, it removes
// such a domain only after its own restart, and lists it until then.
// https://libvirt.org/html/libvirt-libvirt-domain.html#virDomainPausedReason
func (h *hypervisor) halfStarted(ctx context.Context, in *provider.Instance, d *domain) (bool, error) {
	if in.State != provider.StatePending {
		return false, nil
	}
	persistent, err := h.DomainIsPersistent(d.Domain)
	if err != nil {
		return false, ambiguousError(translate(ctx, err, "check domain "+in.ProviderID))
	}
	return persistent == 0, nil
}

// Get implements provider.Driver.
func (d *Driver) Get(ctx context.Context, req provider.GetRequest) (in *provider.Instance, err error) {
	if req.ProviderID != "" {
		id, err := parseProviderID(req.ProviderID)
		if err != nil {
			return nil, err
		}
		err = d.withHypervisor(ctx, req.Class.Credentials, req.Scope, func(h *hypervisor) error {
			found, err := h.get(ctx, id)
			if err == nil {
				in, err = h.instance(ctx, found)
			}
			return err
		})
		return in, err
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	err = d.withHypervisor(ctx, req.Class.Credentials, req.Scope, func(h *hypervisor) error {
		all, err := h.domainsOf(ctx, own)
		if err != nil {
			return err
		}
		var best *domain
		if in, best, err = h.preferredInstance(ctx, all); err != nil {
			return err
		}
		starting := false
		if in != nil {
			if starting, err = h.halfStarted(ctx, in, best); err != nil {
				return err
			}
		}
		if in == nil || starting {
			in, err = nil, provider.Errorf(provider.NotFound, "no domain belongs to machine %s/%s (%s)", own.machine.Namespace,
				own.machine.Name, own.machine.UID)
		}
		return err
	})
	return in, err
}

// volume is a libvirt volume with the owner and the attempt in its name.
type volume struct {
	libvirt.StorageVol
	cluster, uid, attempt string
}

// listVolumes returns Machinist's volumes with a name prefix, from all active pools and without duplicates.
func (h *hypervisor) listVolumes(ctx context.Context, prefix string) ([]volume, error) {
	pools, _, err := h.ConnectListAllStoragePools(1, libvirt.ConnectListStoragePoolsActive)
	if err != nil {
		return nil, translate(ctx, err, "list storage pools")
	}
	var all []volume
	seen := map[string]bool{}
	for _, pool := range pools {
		listed, _, err := h.StoragePoolListAllVolumes(pool, 1, 0)
		switch {
		case codeOf(err) == libvirt.ErrNoStoragePool, codeOf(err) == libvirt.ErrOperationInvalid:
			continue // The pool was stopped after it was listed.
		case err != nil:
			return nil, translate(ctx, err, "list the volumes of a storage pool")
		}
		for _, v := range listed {
			cluster, uid, attempt, ours := volumeOwner(v.Name)
			// Two pools can use the same directory.
			if !ours || !strings.HasPrefix(v.Name, prefix) || seen[v.Key] {
				continue
			}
			seen[v.Key] = true
			all = append(all, volume{v, cluster, uid, attempt})
		}
	}
	return all, nil
}
