package orphans

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// now, all at one version. Whatever casts a uncertainty on it is an error.
func (c *Collector) listMachines(ctx context.Context) (map[types.UID]bool, error) {
	live, version, token := map[types.UID]bool{}, "", ""
	for {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineList"))
		if err := c.Live.List(ctx, list, client.InNamespace(c.Rules.Namespace), client.Limit(c.pageSize),
			client.Continue(token)); err != nil {
			return nil, fmt.Errorf("list all machines: %w", err)
		}
		for i := range list.Items {
			live[list.Items[i].UID] = true
		}
		left := list.GetRemainingItemCount()
		switch next := list.GetContinue(); {
		case list.ResourceVersion == "" || version != "" && list.ResourceVersion != version:
			return nil, fmt.Errorf("list all machines: the pages are of the versions %q and %q", version, list.ResourceVersion)
		case next == "" && left != nil && *left > 0:
			return nil, fmt.Errorf("list all machines: the list ends with %d left", *left)
		case next == "":
			return live, nil
		case next == token:
			return nil, fmt.Errorf("list all machines: the list does not get on after %d", len(live))
		default:
			version, token = list.ResourceVersion, next
		}
	}
}
