package driver

import (
	"context"
	"strings"

	"github.com/digitalocean/go-libvirt"

	"machinist.dev/machinist/pkg/provider"
)

// domain is one of libvirt's, with what Machinist wrote into it.
type domain struct {
	libvirt.Domain
	metadata metadata
}

// get returns a domain by its UUID.
func (h *hypervisor) get(ctx context.Context, id libvirt.UUID) (*domain, error) {
	found, err := h.DomainLookupByUUID(id)
	if err != nil {
		return nil, translate(ctx, err, "get domain "+providerID(id))
	}
	return h.described(ctx, found)
}

// described reads the metadata of a domain.
func (h *hypervisor) described(ctx context.Context, d libvirt.Domain) (*domain, error) {
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

// domains are those of the hypervisor that are wanted, each once. Asked is whether to ask for the metadata of one.
func (h *hypervisor) domains(ctx context.Context, wanted func(*domain) bool, asked func(libvirt.Domain) bool) ([]*domain,
	error) {
	listed, _, err := h.ConnectListAllDomains(1, 0)
	if err != nil {
		return nil, translate(ctx, err, "list domains")
	}
	all := make([]*domain, 0, len(listed))
	seen := map[libvirt.UUID]bool{}
	for _, d := range listed {
		if seen[d.UUID] || !asked(d) {
			continue
		}
		seen[d.UUID] = true
		described, err := h.described(ctx, d)
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

func every(libvirt.Domain) bool { return true }

// ownedBy are the domains of an owner.
func (h *hypervisor) ownedBy(ctx context.Context, own owner) ([]*domain, error) {
	return h.domains(ctx, func(d *domain) bool { return own.owns(d.metadata) }, every)
}

// preferred is the domain that stands for a machine which has several: one that runs before one that does not, and that
// before one that is being deleted. It is nil where there is none.
func (h *hypervisor) preferred(ctx context.Context, all []*domain) (*provider.Instance, *domain, error) {
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

// halfStarted reports whether a domain is one that is being started and is not persistent yet. If libvirtd ends before
// the start is over, it kills and removes such a domain when it runs again, but shows it until then.
// https://libvirt.org/html/libvirt-libvirt-domain.html#virDomainPausedReason
func (h *hypervisor) halfStarted(ctx context.Context, in *provider.Instance, d *domain) (bool, error) {
	if in.State != provider.StatePending {
		return false, nil
	}
	persistent, err := h.DomainIsPersistent(d.Domain)
	if err != nil {
		return false, existing(translate(ctx, err, "check domain "+in.ProviderID))
	}
	return persistent == 0, nil
}

// Get implements provider.Driver.
func (d *Driver) Get(ctx context.Context, req provider.GetRequest) (in *provider.Instance, err error) {
	if req.ProviderID != "" {
		id, err := locate(req.ProviderID)
		if err != nil {
			return nil, err
		}
		err = d.with(ctx, req.Class.Credentials, req.Scope, func(h *hypervisor) error {
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
	err = d.with(ctx, req.Class.Credentials, req.Scope, func(h *hypervisor) error {
		all, err := h.ownedBy(ctx, own)
		if err != nil {
			return err
		}
		var of *domain
		if in, of, err = h.preferred(ctx, all); err != nil {
			return err
		}
		half := false
		if in != nil {
			if half, err = h.halfStarted(ctx, in, of); err != nil {
				return err
			}
		}
		if in == nil || half {
			in, err = nil, provider.Errorf(provider.NotFound, "there is no domain of machine %s/%s (%s)", own.machine.Namespace,
				own.machine.Name, own.machine.UID)
		}
		return err
	})
	return in, err
}

// volume is one of libvirt's, by name.
type volume struct {
	libvirt.StorageVol
	cluster, uid, attempt string
}

// volumes are those of Machinist's in all active pools whose names have the prefix, each once.
func (h *hypervisor) volumes(ctx context.Context, prefix string) ([]volume, error) {
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
			continue // It has just been stopped.
		case err != nil:
			return nil, translate(ctx, err, "list the volumes of a storage pool")
		}
		for _, v := range listed {
			cluster, uid, attempt, ours := volumeOwner(v.Name)
			// Two pools can be one folder.
			if !ours || !strings.HasPrefix(v.Name, prefix) || seen[v.Key] {
				continue
			}
			seen[v.Key] = true
			all = append(all, volume{v, cluster, uid, attempt})
		}
	}
	return all, nil
}
