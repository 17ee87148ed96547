package fakeazure

import (
	"net/http"
	"slices"
	"strings"
)

// action returns the role action for an operation.
// https://learn.microsoft.com/azure/role-based-access-control/resource-provider-operations
func action(operation string) string {
	resource, verb, _ := strings.Cut(operation, "_")
	types := map[string]string{
		"VirtualMachines": string(kindVM), "Disks": string(kindDisk), "NetworkInterfaces": string(kindNIC),
		"PublicIPAddresses": string(kindIP),
		"Subnets":           string(kindSubnet), "ResourceSkus": "Microsoft.Compute/skus",
		"ResourceGroups":        "Microsoft.Resources/subscriptions/resourceGroups",
		"ComputeOperations":     "Microsoft.Compute/locations/operations",
		"NetworkOperations":     "Microsoft.Network/locations/operations",
		"MarketplaceAgreements": "Microsoft.MarketplaceOrdering/offertypes/publishers/offers/plans/agreements",
	}
	switch verb {
	case "CreateOrUpdate", "Update", "UpdateTags", "Create":
		return types[resource] + "/write"
	case "Delete":
		return types[resource] + "/delete"
	case "Deallocate", "Start", "PowerOff":
		return types[resource] + "/" + strings.ToLower(verb[:1]) + verb[1:] + "/action"
	}
	return types[resource] + "/read"
}

// checkPermissions refuses operations that the role does not allow: the operation itself, and the use of other
// resources. https://learn.microsoft.com/azure/role-based-access-control/overview
func (c *call) checkPermissions() *failure {
	if c.azure.options.Actions == nil {
		return nil
	}
	first := action(c.Operation)
	if !c.azure.allows(first) {
		return fail(http.StatusForbidden, "AuthorizationFailed",
			"The client '%s' does not have authorization to perform action '%s'.", c.azure.options.Client, first)
	}
	for _, linked := range c.linkedActions() {
		if !c.azure.allows(linked) {
			return fail(http.StatusForbidden, "LinkedAuthorizationFailed",
				"The client '%s' has permission to perform action '%s'; however, it does not have permission to perform action '%s' on the linked scope.", c.azure.options.Client, first, linked)
		}
	}
	return nil
}

// linkedActions returns the actions that a request requires on the resources that it refers to.
func (c *call) linkedActions() []string {
	var all []string
	need := func(action string, paths ...string) {
		for _, path := range paths {
			if slices.ContainsFunc(visit(c.body, strings.Split(path, ".")), func(at any) bool { return at != nil }) {
				all = append(all, action)
			}
		}
	}
	ip := "properties.ipConfigurations.*.properties."
	switch c.Operation {
	case "NetworkInterfaces_CreateOrUpdate":
		need(string(kindSubnet)+"/join/action", ip+"subnet.id")
		need(string(kindIP)+"/join/action", ip+"publicIPAddress.id")
		need("Microsoft.Network/networkSecurityGroups/join/action", "properties.networkSecurityGroup.id")
		need("Microsoft.Network/applicationSecurityGroups/joinIpConfiguration/action", ip+"applicationSecurityGroups.*.id")
		need("Microsoft.Network/loadBalancers/backendAddressPools/join/action", ip+"loadBalancerBackendAddressPools.*.id")
	case "VirtualMachines_CreateOrUpdate":
		need(string(kindNIC)+"/join/action", "properties.networkProfile.networkInterfaces.*.id")
		need(string(kindDisk)+"/write", "properties.storageProfile.osDisk")
		need("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action", "identity.userAssignedIdentities")
	}
	return all
}

func (a *Azure) allows(action string) bool {
	return slices.ContainsFunc(a.options.Actions, func(allowed string) bool { return strings.EqualFold(allowed, action) })
}
