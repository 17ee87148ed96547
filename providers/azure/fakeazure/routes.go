package fakeazure

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"
)

// route is one operation of the published API.
type route struct {
	method, path string
	operation    string
	versions     []string
	serve        func(c *call) Answer
}

// computeVersions returns the supported API versions, which are those of the SDK.
func computeVersions() []string { return []string{"2024-07-01", "2024-11-01", "2025-04-01"} }
func diskVersions() []string    { return []string{"2024-03-02", "2025-01-02"} }
func networkVersions() []string { return []string{"2024-05-01", "2025-01-01"} }

const (
	subscriptionPath = "/subscriptions/*"
	groupPath        = subscriptionPath + "/resourcegroups/*"
	computePath      = "/providers/microsoft.compute"
	networkPath      = "/providers/microsoft.network"
)

// routes returns all operations. A * in a path matches one segment: the subscription, the resource group, or an entry
// of Call.Names.
func routes() []route {
	vm, disk := groupPath+computePath+"/virtualmachines", groupPath+computePath+"/disks"
	nic, ip := groupPath+networkPath+"/networkinterfaces", groupPath+networkPath+"/publicipaddresses"
	compute, disks, network := computeVersions(), diskVersions(), networkVersions()
	operations := slices.Concat(compute, disks)
	return []route{
		{http.MethodGet, groupPath, "ResourceGroups_Get", []string{"2021-04-01"}, func(c *call) Answer {
			return c.get(c.azure.groupID(c.Group))
		}},

		{http.MethodPut, vm + "/*", "VirtualMachines_CreateOrUpdate", compute, (*call).putVM},
		{http.MethodPatch, vm + "/*", "VirtualMachines_Update", compute, (*call).patchVM},
		{http.MethodGet, vm + "/*", "VirtualMachines_Get", compute, (*call).getVM},
		{http.MethodDelete, vm + "/*", "VirtualMachines_Delete", compute, (*call).deleteVM},
		{http.MethodPost, vm + "/*/deallocate", "VirtualMachines_Deallocate", compute, (*call).deallocateVM},
		{http.MethodPost, vm + "/*/poweroff", "VirtualMachines_PowerOff", compute, (*call).powerOffVM},
		{http.MethodPost, vm + "/*/start", "VirtualMachines_Start", compute, (*call).startVM},
		{http.MethodGet, vm, "VirtualMachines_List", compute, listHandler(kindVM)},
		{http.MethodGet, subscriptionPath + computePath + "/virtualmachines", "VirtualMachines_ListAll", compute,
			listHandler(kindVM)},

		{http.MethodGet, disk + "/*", "Disks_Get", disks, gets(kindDisk)},
		{http.MethodPatch, disk + "/*", "Disks_Update", disks, (*call).patchDisk},
		{http.MethodDelete, disk + "/*", "Disks_Delete", disks, (*call).deleteDisk},
		{http.MethodGet, disk, "Disks_ListByResourceGroup", disks, listHandler(kindDisk)},
		{http.MethodGet, subscriptionPath + computePath + "/disks", "Disks_List", disks, listHandler(kindDisk)},

		{http.MethodPut, nic + "/*", "NetworkInterfaces_CreateOrUpdate", network, (*call).putNIC},
		{http.MethodPatch, nic + "/*", "NetworkInterfaces_UpdateTags", network, tags(kindNIC)},
		{http.MethodGet, nic + "/*", "NetworkInterfaces_Get", network, gets(kindNIC)},
		{http.MethodDelete, nic + "/*", "NetworkInterfaces_Delete", network, (*call).deleteNIC},
		{http.MethodGet, nic, "NetworkInterfaces_List", network, listHandler(kindNIC)},
		{http.MethodGet, subscriptionPath + networkPath + "/networkinterfaces", "NetworkInterfaces_ListAll", network,
			listHandler(kindNIC)},

		{http.MethodPut, ip + "/*", "PublicIPAddresses_CreateOrUpdate", network, (*call).putIP},
		{http.MethodPatch, ip + "/*", "PublicIPAddresses_UpdateTags", network, tags(kindIP)},
		{http.MethodGet, ip + "/*", "PublicIPAddresses_Get", network, gets(kindIP)},
		{http.MethodDelete, ip + "/*", "PublicIPAddresses_Delete", network, (*call).deleteIP},
		{http.MethodGet, ip, "PublicIPAddresses_List", network, listHandler(kindIP)},
		{http.MethodGet, subscriptionPath + networkPath + "/publicipaddresses", "PublicIPAddresses_ListAll", network,
			listHandler(kindIP)},

		{http.MethodGet, groupPath + networkPath + "/virtualnetworks/*/subnets/*", "Subnets_Get", network,
			func(c *call) Answer {
				return c.get(c.azure.id(c.Group, "Microsoft.Network/virtualNetworks", c.Names[0]) + "/subnets/" + c.Names[1])
			}},
		{http.MethodGet, subscriptionPath + computePath + "/skus", "ResourceSkus_List", []string{"2021-07-01"},
			(*call).listSKUs},
		{http.MethodGet, subscriptionPath + computePath + "/locations/*/operations/*", "ComputeOperations_Get", operations,
			(*call).poll},
		{http.MethodGet, subscriptionPath + networkPath + "/locations/*/operations/*", "NetworkOperations_Get", network,
			(*call).poll},
		{http.MethodGet, agreementPath, "MarketplaceAgreements_Get", []string{"2021-01-01"}, (*call).getAgreement},
		{http.MethodPut, agreementPath, "MarketplaceAgreements_Create", []string{"2021-01-01"}, (*call).putAgreement},
	}
}

const agreementPath = subscriptionPath +
	"/providers/microsoft.marketplaceordering/offertypes/virtualmachine/publishers/*/offers/*/plans/*/agreements/current"

func routeOf(operation string) *route {
	all := routes()
	if i := slices.IndexFunc(all, func(r route) bool { return r.operation == operation }); i >= 0 {
		return &all[i]
	}
	return nil
}

// match returns the route of a request, and the names in its path.
func match(method, path string) (*route, []string) {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	all := routes()
	for i := range all {
		if params, ok := all[i].matches(method, segments); ok {
			return &all[i], params
		}
	}
	return nil, nil
}

func (r *route) matches(method string, segments []string) ([]string, bool) {
	pattern := strings.Split(strings.Trim(r.path, "/"), "/")
	if method != r.method || len(pattern) != len(segments) {
		return nil, false
	}
	var params []string
	for i, p := range pattern {
		switch {
		case p != "*":
			if !strings.EqualFold(p, segments[i]) {
				return nil, false
			}
		case segments[i] == "":
			return nil, false
		case pattern[i-1] != "subscriptions" && pattern[i-1] != "resourcegroups":
			params = append(params, segments[i])
		}
	}
	return params, true
}

// resourceAt returns a resource in the group of the call, and its ID.
func (c *call) resourceAt(k kind, name string) (*resource, string) {
	id := c.azure.id(c.Group, k, name)
	return c.azure.find(id), id
}

func (c *call) missing(k kind, name string) *failure {
	return fail(http.StatusNotFound, "ResourceNotFound", "The Resource '%s/%s' under resource group '%s' was not found.",
		k, name, c.Group)
}

func gets(k kind) func(*call) Answer {
	return func(c *call) Answer {
		r := c.azure.read(c.azure.id(c.Group, k, c.Names[0]))
		if r == nil {
			return refuse(c.missing(k, c.Names[0]))
		}
		return answer(http.StatusOK, c.azure.view(r))
	}
}

func (c *call) get(id string) Answer {
	if r := c.azure.find(id); r != nil {
		return answer(http.StatusOK, r.show())
	}
	return refuse(fail(http.StatusNotFound, "ResourceNotFound", "The Resource '%s' was not found.", id))
}

// listHandler lists the resources of a type in the group of the call or in the whole subscription. The list lags by
// ListLag.
func listHandler(k kind) func(*call) Answer {
	return func(c *call) Answer {
		if c.Expand != "" && c.Filter == "" {
			// https://learn.microsoft.com/rest/api/compute/virtual-machines/list
			return refuse(fail(http.StatusBadRequest, "InvalidParameter", "$expand needs a valid $filter."))
		}
		c.azure.reads++
		group, seen := c.Group, time.Now().Add(-c.azure.options.ListLag)
		var found []*resource
		for _, r := range c.azure.resources {
			if !r.created.After(seen) {
				found = append(found, r)
			}
		}
		maxLag := max(c.azure.options.ListLag, c.azure.options.Semantics.ReadsShowDeleted)
		c.azure.deletedResources = slices.DeleteFunc(c.azure.deletedResources,
			func(r *resource) bool { return time.Since(r.gone) > maxLag })
		for _, r := range c.azure.deletedResources {
			if r.gone.After(seen) && !r.created.After(seen) && c.azure.find(r.id) == nil {
				found = append(found, r)
			}
		}
		found = slices.DeleteFunc(found, func(r *resource) bool {
			return r.kind != k || group != "" && !strings.EqualFold(group, r.group)
		})
		slices.SortFunc(found, func(a, b *resource) int { return cmp.Compare(a.sequence, b.sequence) })
		all := make([]object, len(found))
		for i, r := range found {
			all[i] = c.azure.view(r)
		}
		return c.page(c.arrange(all))
	}
}

// tags handles a PATCH that replaces the tags of a resource.
// https://learn.microsoft.com/rest/api/virtualnetwork/network-interfaces/update-tags
func tags(k kind) func(*call) Answer {
	return func(c *call) Answer {
		r, _ := c.resourceAt(k, c.Names[0])
		if r == nil {
			return refuse(c.missing(k, c.Names[0]))
		}
		if f := checkTags(c.body); f != nil {
			return refuse(f)
		}
		r.body["tags"] = child(c.body, "tags")
		r.touch()
		return answer(http.StatusOK, r.show())
	}
}
