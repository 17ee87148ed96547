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
	// machinesPerPage limits how many Machines are in memory at a time.
	machinesPerPage = 500
	// maxPages is the maximum number of pages in a list. A longer list is an error, because a faulty driver could
	// return pages forever.
	maxPages = 100_000
)

// listInstances returns all instances and leftovers of a scope as one page. Incomplete lists are errors.
func (c *Collector) listInstances(ctx context.Context, s *scope) (all provider.ListPage, err error) {
	req := provider.ListRequest{Class: s.class, ClusterID: c.Rules.ClusterID}
	for range maxPages {
		page, err := c.Cloud.List(ctx, req)
		switch {
		case err != nil:
			return provider.ListPage{}, err
		case page.Continue != "" && page.Continue == req.Continue:
			return provider.ListPage{},
				provider.Errorf(provider.Internal, "the driver's list returned the same page again after %d instances", len(all.Instances))
		}
		all.Instances = append(all.Instances, page.Instances...)
		all.Leftovers = append(all.Leftovers, page.Leftovers...)
		if req.Continue = page.Continue; req.Continue == "" {
			return all, nil
		}
	}
	return provider.ListPage{}, provider.Errorf(provider.Internal, "the driver's list has not ended after %d instances",
		len(all.Instances))
}

// listMachines lists the Machines of this installation at the API server, at one resource version. The first result
// contains the UIDs of these Machines. The second result contains the provider IDs of other shards' Machines, because
// the cache does not contain these Machines. Incomplete lists are errors.
func (c *Collector) listMachines(ctx context.Context) (live map[types.UID]bool, recorded map[string]bool, err error) {
	live, recorded = map[types.UID]bool{}, map[string]bool{}
	version, token := "", ""
	for {
		list := c.emptyList()
		if err := c.LiveClient.List(ctx, list, client.InNamespace(c.Rules.Namespace), client.Limit(c.pageSize),
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
			return nil, nil, fmt.Errorf("list all machines: the pages have different resource versions: %q and %q", version,
				list.GetResourceVersion())
		case next == "" && left != nil && *left > 0:
			return nil, nil, fmt.Errorf("list all machines: the list ended %d machines early", *left)
		case next == "":
			return live, recorded, nil
		case next == token:
			return nil, nil, fmt.Errorf("list all machines: the API server returned the same page again after %d machines", len(live))
		default:
			version, token = list.GetResourceVersion(), next
		}
	}
}

// emptyList returns an empty list of Machines. If there are no shards, the list needs only metadata, because the
// provider IDs of all Machines are in the cache.
func (c *Collector) emptyList() client.ObjectList {
	if !c.Rules.Shard.IsUndivided() {
		return &v1beta1.MachineList{}
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineList"))
	return list
}
