package orphans

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

const (
	// machinesPerPage bounds what the API server and this process hold at a time.
	machinesPerPage = 500
	// mostPages ends a list of a driver that never comes to its last page.
	mostPages = 100_000
)

// listInstances returns all instances and leftovers of a scope as one page, or an error: a part of them is of no use.
func (c *Collector) listInstances(ctx context.Context, s *scope) (all provider.ListPage, err error) {
	req := provider.ListRequest{Class: s.class, ClusterID: c.Rules.ClusterID}
	for range mostPages {
		page, err := c.Cloud.List(ctx, req)
		switch {
		case err != nil:
			return provider.ListPage{}, err
		case page.Continue != "" && page.Continue == req.Continue:
			return provider.ListPage{},
				provider.Errorf(provider.Internal, "the driver's list does not get on after %d instances", len(all.Instances))
		}
		all.Instances = append(all.Instances, page.Instances...)
		all.Leftovers = append(all.Leftovers, page.Leftovers...)
		if req.Continue = page.Continue; req.Continue == "" {
			return all, nil
		}
	}
	return provider.ListPage{}, provider.Errorf(provider.Internal, "the driver's list has no end after %d instances",
		len(all.Instances))
}

// listMachines returns the UIDs of all Machines in the scope of this installation as the API server itself has them
// now, all at one version. Whatever casts a uncertainty on it is an error. recorded are the provider IDs of Machines
// that the cache does not have because they are another shard's.
func (c *Collector) listMachines(ctx context.Context) (live map[types.UID]bool, recorded map[string]bool, err error) {
	live, recorded = map[types.UID]bool{}, map[string]bool{}
	version, token := "", ""
	for {
		list := c.emptyList()
		if err := c.Live.List(ctx, list, client.InNamespace(c.Rules.Namespace), client.Limit(c.pageSize),
			client.Continue(token)); err != nil {
			return nil, nil, fmt.Errorf("list all machines: %w", err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			switch m := o.(type) {
			case *metav1.PartialObjectMetadata:
				live[m.UID] = true
			case *v1beta1.Machine:
				if live[m.UID] = true; !c.Rules.Shard.Owns(m.Namespace) && m.Spec.ProviderID != "" {
					recorded[m.Spec.ProviderID] = true
				}
			}
			return nil
		}); err != nil {
			return nil, nil, fmt.Errorf("list all machines: %w", err)
		}
		left := list.GetRemainingItemCount()
		switch next := list.GetContinue(); {
		case list.GetResourceVersion() == "" || version != "" && list.GetResourceVersion() != version:
			return nil, nil, fmt.Errorf("list all machines: the pages are of the versions %q and %q", version,
				list.GetResourceVersion())
		case next == "" && left != nil && *left > 0:
			return nil, nil, fmt.Errorf("list all machines: the list ends with %d left", *left)
		case next == "":
			return live, recorded, nil
		case next == token:
			return nil, nil, fmt.Errorf("list all machines: the list does not get on after %d", len(live))
		default:
			version, token = list.GetResourceVersion(), next
		}
	}
}

// emptyList is for Machines: their metadata is enough where the cache has the rest.
func (c *Collector) emptyList() client.ObjectList {
	if !c.Rules.Shard.All() {
		return &v1beta1.MachineList{}
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineList"))
	return list
}
