package fakeazure

import (
	"fmt"
	"net/http"
	"strings"
)

const subnetCapacity = 1000

// putNIC creates or changes a network interface.
// https://learn.microsoft.com/rest/api/virtualnetwork/network-interfaces/create-or-update
func (c *call) putNIC() Answer {
	a := c.azure
	r, id := c.resourceAt(kindNIC, c.Names[0])
	if f := nicSchema().check(c.body); f != nil {
		return refuse(f)
	}
	configurations := list(c.body, "properties", "ipConfigurations")
	if len(configurations) == 0 {
		return refuse(fail(http.StatusBadRequest, "NetworkInterfaceMustHaveAtleastOneIpConfiguration",
			"The network interface must have at least one IP configuration."))
	}
	for _, ip := range configurations {
		subnet := text(ip, "properties", "subnet", "id")
		if a.find(subnet) == nil {
			return refuse(fail(http.StatusBadRequest, "InvalidResourceReference",
				"Resource %s referenced by resource %s was not found.", subnet, id))
		}
		publicID := text(ip, "properties", "publicIPAddress", "id")
		public := a.find(publicID)
		if publicID != "" && public == nil {
			return refuse(fail(http.StatusBadRequest, "InvalidResourceReference",
				"Resource %s referenced by resource %s was not found.", publicID, id))
		}
		if public != nil {
			if user := text(public.body, "properties", "ipConfiguration", "id"); user != "" &&
				!strings.HasPrefix(strings.ToLower(user), strings.ToLower(id)+"/") {
				return refuse(fail(http.StatusBadRequest, "PublicIPAddressInUse",
					"Resource %s is referencing public IP address %s that is already allocated.", id, publicID))
			}
		}
	}
	if r != nil {
		// Keep the addresses that Azure has already assigned.
		old := list(r.body, "properties", "ipConfigurations")
		for i, ip := range configurations {
			if i < len(old) {
				child(ip, "properties")["privateIPAddress"] = text(old[i], "properties", "privateIPAddress")
			}
		}
		attached := r.properties()["virtualMachine"]
		r.body = c.body
		if attached != nil {
			r.properties()["virtualMachine"] = attached
		}
		a.completeNIC(r)
		return answer(http.StatusOK, r.show())
	}
	for _, ip := range configurations {
		address, f := a.allocate(text(ip, "properties", "subnet", "id"))
		if f != nil {
			return refuse(f)
		}
		child(ip, "properties")["privateIPAddress"] = address
	}
	r = &resource{id: id, group: c.Group, name: c.Names[0], kind: kindNIC, body: c.body}
	a.add(r)
	a.completeNIC(r)
	r.properties()["macAddress"] = fmt.Sprintf("00-0D-3A-%02X-%02X-%02X", r.sequence>>16&0xff, r.sequence>>8&0xff,
		r.sequence&0xff)
	if a.options.ChangeDuration > 0 {
		r.setState("Updating")
	}
	return a.operate(r, a.options.ChangeDuration, func() *failure {
		r.setState("Succeeded")
		return c.asyncFailure
	}).response(http.StatusCreated, r.show())
}

// completeNIC sets the derived properties of an interface and its public addresses.
func (a *Azure) completeNIC(r *resource) {
	r.setState("Succeeded")
	for _, ip := range list(r.body, "properties", "ipConfigurations") {
		properties := child(ip, "properties")
		properties["provisioningState"] = "Succeeded"
		ip["id"] = r.id + "/ipConfigurations/" + text(ip, "name")
		if public := a.find(text(properties, "publicIPAddress", "id")); public != nil {
			public.properties()["ipConfiguration"] = object{"id": ip["id"]}
			if option := text(properties, "publicIPAddress", "properties", "deleteOption"); option != "" {
				public.properties()["deleteOption"] = option
			}
			public.touch()
		}
	}
}

// allocate assigns the next address of a subnet. Azure reserves the first four addresses of a subnet.
// https://learn.microsoft.com/azure/virtual-network/virtual-networks-faq
func (a *Azure) allocate(subnet string) (string, *failure) {
	key := strings.ToLower(subnet)
	if a.addresses[key] >= subnetCapacity {
		return "", fail(http.StatusBadRequest, "SubnetIsFull", "Subnet %s does not have enough capacity for 1 IP addresses.",
			subnet)
	}
	a.addresses[key]++
	n := a.addresses[key] + 3
	return fmt.Sprintf("10.20.%d.%d", n>>8, n&0xff), nil
}

// deleteNIC deletes an interface that is not attached to a machine.
// https://learn.microsoft.com/rest/api/virtualnetwork/network-interfaces/delete
func (c *call) deleteNIC() Answer {
	a := c.azure
	r, _ := c.resourceAt(kindNIC, c.Names[0])
	if r == nil {
		return answer(http.StatusNoContent, nil)
	}
	if vm := text(r.body, "properties", "virtualMachine", "id"); vm != "" {
		return refuse(fail(http.StatusBadRequest, "NicInUse", "Network Interface %s is used by existing resource %s.", r.id,
			vm))
	}
	r.setState("Deleting")
	return a.operate(r, a.options.ChangeDuration,
		func() *failure { a.removeNIC(r); return nil }).response(http.StatusAccepted,
		nil)
}

func (a *Azure) removeNIC(r *resource) {
	for _, ip := range list(r.body, "properties", "ipConfigurations") {
		if public := a.find(text(ip, "properties", "publicIPAddress", "id")); public != nil {
			delete(public.properties(), "ipConfiguration")
			public.touch()
		}
	}
	a.remove(r)
}

// putIP creates or changes a public address.
// https://learn.microsoft.com/rest/api/virtualnetwork/public-ip-addresses/create-or-update
func (c *call) putIP() Answer {
	a := c.azure
	r, id := c.resourceAt(kindIP, c.Names[0])
	if f := ipSchema().check(c.body); f != nil {
		return refuse(f)
	}
	if text(c.body, "sku", "name") == "Standard" && text(c.body, "properties", "publicIPAllocationMethod") != "Static" {
		return refuse(fail(http.StatusBadRequest, "StandardSkuPublicIPAddressesMustBeStatic",
			"Standard sku publicIp %s must have AllocationMethod set to Static.", id))
	}
	if r != nil {
		for _, key := range []string{"ipAddress", "ipConfiguration"} {
			if remaining := r.properties()[key]; remaining != nil {
				child(c.body, "properties")[key] = remaining
			}
		}
		r.body = c.body
		r.setState("Succeeded")
		return answer(http.StatusOK, r.show())
	}
	r = &resource{id: id, group: c.Group, name: c.Names[0], kind: kindIP, body: c.body}
	a.add(r)
	r.properties()["ipAddress"] = fmt.Sprintf("203.0.113.%d", r.sequence%254+1)
	r.setState("Succeeded")
	if a.options.ChangeDuration > 0 {
		r.setState("Updating")
	}
	return a.operate(r, a.options.ChangeDuration, func() *failure {
		r.setState("Succeeded")
		return c.asyncFailure
	}).response(http.StatusCreated, r.show())
}

// deleteIP deletes an address that no interface uses.
// https://learn.microsoft.com/rest/api/virtualnetwork/public-ip-addresses/delete
func (c *call) deleteIP() Answer {
	a := c.azure
	r, _ := c.resourceAt(kindIP, c.Names[0])
	if r == nil {
		return answer(http.StatusNoContent, nil)
	}
	if user := text(r.body, "properties", "ipConfiguration", "id"); user != "" {
		return refuse(fail(http.StatusBadRequest, "PublicIPAddressCannotBeDeleted",
			"Public IP address %s can not be deleted since it is still allocated to resource %s.", r.id, user))
	}
	r.setState("Deleting")
	return a.operate(r, a.options.ChangeDuration,
		func() *failure { a.remove(r); return nil }).response(http.StatusAccepted, nil)
}
