package driver

import (
	"context"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/vsphere/machine"
)

func folderPath(l machine.Location) string { return "/" + l.Datacenter + "/vm/" + l.Folder }

// byPath finds an object of the inventory. An absent object is an error about the field that names it.
func (s *session) byPath(ctx context.Context, field, path string, kinds ...string) (types.ManagedObjectReference,
	error) {
	content, err := s.content(ctx)
	if err != nil {
		return types.ManagedObjectReference{}, err
	}
	answer, err := methods.FindByInventoryPath(ctx, s, &types.FindByInventoryPath{This: *content.SearchIndex,
		InventoryPath: path})
	if err != nil {
		return types.ManagedObjectReference{}, asCreateError(translate(ctx, err, "find "+path), "find "+path)
	}
	if answer.Returnval == nil {
		return types.ManagedObjectReference{}, missing(field, "vCenter %s has no object with the path %.256q, or the user "+
			"lacks the privilege System.View on the object", s.vcenter, path)
	}
	for _, kind := range kinds {
		if answer.Returnval.Type == kind {
			return *answer.Returnval, nil
		}
	}
	return types.ManagedObjectReference{}, missing(field, "the object with the path %.256q in vCenter %s is a %s", path,
		s.vcenter, answer.Returnval.Type)
}

func missing(field, format string, args ...any) error {
	e := provider.Errorf(provider.FailedPrecondition, format, args...)
	e.Field = field
	return e
}

// folder returns the folder of a class, which is the scope of lists.
func (s *session) folder(ctx context.Context, at machine.Location) (types.ManagedObjectReference, error) {
	return s.byPath(ctx, "folder", folderPath(at), "Folder")
}

// placement contains the objects that a clone refers to.
type placement struct {
	folder, template, pool types.ManagedObjectReference
	// datastore is nil if a datastore cluster is set.
	datastore, datastoreCluster *types.ManagedObjectReference
	networks                    []types.ManagedObjectReference
}

func (s *session) resolve(ctx context.Context, spec machine.Spec) (placement, error) {
	var p placement
	var err error
	if p.folder, err = s.folder(ctx, spec.Location()); err != nil {
		return p, err
	}
	datacenter := "/" + spec.Datacenter
	if p.template, err = s.byPath(ctx, "template", datacenter+"/vm/"+spec.Template, "VirtualMachine"); err != nil {
		return p, err
	}
	field, pool := "cluster", datacenter+"/host/"+spec.Cluster+"/Resources"
	if spec.ResourcePool != "" {
		field, pool = "resourcePool", pool+"/"+spec.ResourcePool
	}
	if p.pool, err = s.byPath(ctx, field, pool, "ResourcePool"); err != nil {
		return p, err
	}
	if spec.Datastore != "" {
		ref, err := s.byPath(ctx, "datastore", datacenter+"/datastore/"+spec.Datastore, "Datastore")
		if err != nil {
			return p, err
		}
		p.datastore = &ref
	} else {
		ref, err := s.byPath(ctx, "datastoreCluster", datacenter+"/datastore/"+spec.DatastoreCluster, "StoragePod")
		if err != nil {
			return p, err
		}
		p.datastoreCluster = &ref
	}
	for _, n := range spec.Networks {
		ref, err := s.byPath(ctx, "networks", datacenter+"/network/"+n.Path, "Network", "DistributedVirtualPortgroup",
			"OpaqueNetwork")
		if err != nil {
			return p, err
		}
		p.networks = append(p.networks, ref)
	}
	return p, nil
}
